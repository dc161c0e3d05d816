// What does simdjson's DOM take to parse a file alone: as one value, or FILE.jsonl line by line?
#include <cstddef>
#include <cstdio>
#include <string_view>

#include <simdjson.h>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: simdjson_dom FILE\n", stderr);
    return 2;
  }
  simdjson::padded_string text;
  if (simdjson::padded_string::load(argv[1]).get(text) != simdjson::SUCCESS) {
    std::fprintf(stderr, "simdjson_dom: cannot read %s\n", argv[1]);
    return 2;
  }
  simdjson::dom::parser parser;
  std::string_view rest = text;
  const bool by_lines = std::string_view(argv[1]).ends_with(".jsonl");
  while (!rest.empty()) {
    const std::size_t end = by_lines ? rest.find('\n') : std::string_view::npos;
    const std::string_view value = rest.substr(0, end);
    if (parser.parse(value.data(), value.size(), false).error() != simdjson::SUCCESS) {
      std::fprintf(stderr, "simdjson_dom: %s is no JSON\n", argv[1]);
      return 1;
    }
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return 0;
}
