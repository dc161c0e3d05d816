#include "sim/report/html/page.h"

#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "sim/report/html/page_source.h"

namespace stepsim {

void require_page() {
  if (page_source() == nullptr) {
    throw EnvironmentFault(
        "this build holds no report page (--html): install d3 (Debian, Ubuntu: apt install "
        "node-d3), then build again: meson setup --reconfigure build && ninja -C build");
  }
}

std::string page_text(const Json& data) {
  require_page();
  std::string text;
  for (const std::string_view piece : page_source()->before_data) {
    text += piece;
  }
  text += script_json(data);
  for (const std::string_view piece : page_source()->after_data) {
    text += piece;
  }
  return text;
}

std::string script_json(const Json& value) {
  const std::string json = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  std::string text;
  text.reserve(json.size());
  for (const char c : json) {
    // In JSON a '<' can only be inside a string, where an escape may replace it.
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

}  // namespace stepsim
