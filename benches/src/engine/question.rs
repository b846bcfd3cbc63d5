//! What is asked, and what the model says to it when it is asked alone.

use anyhow::{Context, Result, ensure};
use cascadia_tests::client::{CHAT, Client, with};
use cascadia_tests::sse::Told;
use serde_json::{Value, json};

/// Beginnings that several questions share: longer than some blocks, so that they are found in the prefix cache.
const HEADS: [&str; 3] = [
    "",
    "The lighthouse stood at the end of the pier, and every evening the keeper climbed the hundred and nine steps to light the \
     lamp. He had done so for thirty years, in fog and frost, and had written down each ship that passed: her name, her flag, the \
     hour. Nobody had ever asked to read the books. ",
    "one two three four five six seven eight one two three four five six seven eight one two three four five six seven eight one \
     two three four five six seven eight one two three four five six seven eight one two three four five six seven eight ",
];
const TAILS: [&str; 3] =
    ["Go on.", "Say the last word again, and again.", "What is the name of the keeper's daughter?"];

/// One question.
#[derive(Debug)]
pub(crate) struct Question {
    /// The body of a chat.
    pub(crate) body: Value,
    said: Said,
}

/// An answer: of each choice its text and why it ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Said(Vec<(String, String)>);

impl Said {
    /// Of a whole answer.
    pub(crate) fn of(body: &Value) -> Result<Said> {
        let choices = body["choices"].as_array().context("no choices")?;
        let text =
            |value: &Value| value.as_str().map(str::to_owned).with_context(|| format!("no text in {body}"));
        let each = choices
            .iter()
            .map(|choice| Ok((text(&choice["message"]["content"])?, text(&choice["finish_reason"])?)));
        Ok(Said(each.collect::<Result<_>>()?))
    }

    /// Of a stream of one choice.
    pub(crate) fn told(told: &Told) -> Said {
        Said(told.finish.iter().map(|finish| (told.text.clone(), finish.clone())).collect())
    }
}

impl Question {
    /// Every question, asked alone.
    pub(crate) fn all(client: Client) -> Result<Vec<Question>> {
        let ways = [
            // Long enough that some give way to others.
            json!({ "temperature": 0, "max_tokens": 100, "ignore_eos": true }),
            json!({ "temperature": 0.8, "top_p": 0.9, "seed": 7, "max_tokens": 40 }),
            json!({ "temperature": 0, "frequency_penalty": 0.6, "logprobs": true, "top_logprobs": 3, "max_tokens": 16 }),
            json!({ "temperature": 1.2, "top_k": 30, "seed": 8, "n": 2, "max_tokens": 12 }),
        ];
        let mut all = Vec::new();
        for head in HEADS {
            for tail in TAILS {
                for way in &ways {
                    let messages = json!([{ "role": "user", "content": format!("{head}{tail}") }]);
                    let body = with(json!({ "model": "m", "messages": messages }), way);
                    let answer = client.post(CHAT, &body)?;
                    ensure!(answer.status() == 200, "status {}: {}", answer.status(), answer.text());
                    let said = Said::of(&answer.json())?;
                    all.push(Question { body, said });
                }
            }
        }
        Ok(all)
    }

    /// Choices of its answer.
    pub(crate) fn choices(&self) -> usize {
        self.said.0.len()
    }

    /// An error where it was answered otherwise before.
    pub(crate) fn check(&self, said: &Said) -> Result<()> {
        ensure!(*said == self.said, "{} was answered {said:?}, and alone {:?}", self.body, self.said);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_compared_by_all_its_choices() {
        let body = |second: &str| {
            json!({ "choices": [{ "message": { "content": "a" }, "finish_reason": "stop" },
                { "message": { "content": second }, "finish_reason": "length" }] })
        };
        let said = Said::of(&body("b")).expect("an answer");
        let question = Question { body: json!({}), said };
        assert_eq!(question.choices(), 2);
        assert!(question.check(&Said::of(&body("b")).expect("an answer")).is_ok());
        assert!(question.check(&Said::of(&body("c")).expect("an answer")).is_err());
        let told = Told { text: "a".into(), finish: vec!["stop".into()], ..Told::default() };
        assert!(question.check(&Said::told(&told)).is_err(), "one choice of two");
        assert!(Said::of(&json!({ "choices": [{}] })).is_err());
    }
}
