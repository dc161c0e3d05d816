#pragma once

#include <string>

#include "costmodel/io/json_file.h"

namespace stepsim {

/// Raises EnvironmentFault in a build without d3: what to install, and to build again.
void require_page();

/// The whole page around its data (page_data.h): one file that needs no other and no network.
/// Raises EnvironmentFault as require_page().
[[nodiscard]] std::string page_text(const Json& data);

/// JSON as it may stand in an HTML script element: ASCII without '<', so that no text in it ends
/// the element or opens a comment. What is not UTF-8 becomes U+FFFD.
[[nodiscard]] std::string script_json(const Json& value);

}  // namespace stepsim
