// Programs to replay: a table, and the tables beside it after lines "=== ranks.csv" and so on.

#include <filesystem>
#include <vector>

#include "sim/cli/questions.h"
#include "tests/fuzz/door.h"

namespace stepsim::fuzz {

void enter_replay(std::string_view input) {
  for (const char* beside : {"ranks.csv", "collective_defs.csv", "collectives.csv"}) {
    std::filesystem::remove(path_of(beside));
  }
  std::string program;
  for (const InputPart& part : parts_of(input)) {
    const bool is_beside = part.name == "ranks.csv" || part.name == "collective_defs.csv" ||
                           part.name == "collectives.csv";
    const std::string path = file_with(is_beside ? part.name : "program.csv", part.text);
    program = is_beside ? program : path;
  }
  const std::vector<std::vector<std::string>> options = {
      {},
      {"--no-barrier"},
      {"--ranks-from", "0", "--transfers-from", "shortest", "--transfer-scale", "0.5"},
      {"--sends", "buffered", "--steps-table"}};
  for (const std::vector<std::string>& more : options) {
    std::vector<std::string> arguments = {program};
    arguments.insert(arguments.end(), more.begin(), more.end());
    (void)accepts([&] {
      const Answer answer = ask(question_named("replay"), arguments);
      require(!answer.text({}).empty() && !answer.csv().empty(), "no report");
      const std::string json = answer.json_text();
      require(json.find("null") != 0, "no JSON");
    });
  }
}

}  // namespace stepsim::fuzz
