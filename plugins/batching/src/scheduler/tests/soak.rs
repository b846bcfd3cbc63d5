//! Ten million tokens with the null backend; memory and blocks stay where they are.
