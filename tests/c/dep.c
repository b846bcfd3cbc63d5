/* What a bundle brings besides its plugin. Two builds of it differ in what they answer. */
__attribute__((visibility("default"))) const char *dep_answer(void);

const char *dep_answer(void) { return ANSWER; }
