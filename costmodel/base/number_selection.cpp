#include "costmodel/base/number_selection.h"

#include <optional>
#include <set>

#include "costmodel/base/input_error.h"
#include "costmodel/base/parse_number.h"

namespace stepsim {
namespace {

std::optional<int> number(std::string_view text) {
  const auto value = parse_number<int>(text);
  return value && *value >= 0 ? value : std::nullopt;
}

}  // namespace

std::vector<int> parse_selection(std::string_view text, int count, const std::string& what) {
  std::set<int> chosen;
  std::string_view rest = text;
  while (true) {
    const std::string_view item = rest.substr(0, rest.find(','));
    const std::size_t dots = item.find("..");
    const auto first = number(item.substr(0, dots));
    const auto last = dots == std::string_view::npos ? first : number(item.substr(dots + 2));
    if (!first || !last || *first > *last) {
      throw InputError("{} '{}': give numbers and ranges, such as 0..3,8", what, printable(text));
    }
    if (*last >= count) {
      throw InputError(
          "{} '{}': there are {} {}, 0 to {}", what, printable(text), count, what, count - 1);
    }
    for (int i = *first; i <= *last; ++i) {
      chosen.insert(i);
    }
    if (item.size() == rest.size()) {
      return {chosen.begin(), chosen.end()};
    }
    rest.remove_prefix(item.size() + 1);
  }
}

}  // namespace stepsim
