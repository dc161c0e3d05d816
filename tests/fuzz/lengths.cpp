// Files of lengths: plain, JSON lines, histograms, plans and records.

#include "sim/batching/histogram.h"
#include "sim/cli/questions.h"
#include "tests/fuzz/door.h"

namespace stepsim::fuzz {

void enter_lengths(std::string_view input) {
  for (const char* name : {"lengths.txt", "lengths.json", "lengths.jsonl"}) {
    const std::string path = file_with(name, input);
    (void)accepts([&] {
      const Answer answer =
          ask(question_named("lengths"), std::vector<std::string>{"--file", path});
      require(!answer.text({}).empty() && !answer.json_text().empty(), "no report");
    });
  }
  const std::string path = path_of("lengths.jsonl");
  (void)accepts([&] {
    (void)ask(question_named("lengths"),
              std::vector<std::string>{"--file", path, "--field", "ids"});
  });
  (void)accepts([&] {
    for (const std::int64_t length : sample_histogram(read_histogram(path), 20, 1)) {
      require(length >= 1, "a sample without tokens");
    }
  });
}

}  // namespace stepsim::fuzz
