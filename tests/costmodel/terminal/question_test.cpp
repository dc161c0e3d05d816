#include "costmodel/terminal/question.h"

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"

using namespace stepsim;

namespace {

struct PriceOptions {
  std::string profile;
  int count = 3;
};

Answer ask_price(const CommandRequest& request, const PriceOptions& options) {
  Answer answer;
  answer.text = [=, line = request.command_line({"out"})](const Screen&) {
    return line + " of " + std::to_string(options.count);
  };
  return answer;
}

QuestionRow<CommandRequest> price_row() {
  return question_row(
      "price",
      "what it costs",
      "usage: program price\n",
      {option("files", &PriceOptions::profile, "PROFILE: what has prices").positional(1),
       option("count", &PriceOptions::count, "NUMBER: of them"),
       option("out", &Outputs::json, "FILE or -: where to").written(),
       option("log", &Outputs::csv, "FILE: what was done").written()},
      ask_price);
}

struct AskedPrice {
  CommandRequest request;
  std::string text;
};

AskedPrice ask_words(const std::vector<std::string>& words) {
  const auto row = price_row();
  AskedPrice asked;
  asked.request.command = "program price";
  OptionStructs structs{row.make_own(), {}};
  structs.share(asked.request.outputs);
  if (read_words(words, row.usage, row.options, structs, asked.request)) {
    asked.text = row.ask(asked.request, structs.own).text({});
  }
  return asked;
}

Answer answer_of_status(int status) {
  Answer answer;
  answer.status = status;
  answer.outputs.quiet = true;
  answer.text = [](const Screen&) -> std::string {
    throw InputError("a quiet answer has no text");
  };
  return answer;
}

}  // namespace

TEST_CASE("options set the own struct of a question and those that others share") {
  const AskedPrice asked = ask_words({"a b.json", "--count", "5", "--out=x.json"});
  CHECK(asked.text == "program price 'a b.json' --count 5 of 5");
  CHECK(asked.request.outputs.json == "x.json");
  CHECK_FALSE(asked.request.outputs.quiet);
}

TEST_CASE("a file that goes to standard output makes a question quiet") {
  CHECK(ask_words({"--out", "-"}).request.outputs.quiet);
  CHECK_FALSE(ask_words({"--log", "-"}).request.outputs.quiet);  // A file of this name.
}

TEST_CASE("answers follow one another until one fails") {
  Answer first = answer_of_status(kDone);
  int written = 0;
  first.then.emplace_back([&] { return ++written, answer_of_status(kDone); });
  CHECK(write_answer("program", first) == kDone);
  first.then.emplace_back([&] { return ++written, answer_of_status(kAnswerIsNo); });
  CHECK(write_answer("program", first) == kAnswerIsNo);
  first.then.emplace_back([&]() -> Answer { throw InputError("no such file"); });
  first.then.emplace_back([&] { return ++written, answer_of_status(kDone); });
  CHECK_THROWS_AS((void)write_answer("program", first), InputError);
  CHECK(written == 5);
}
