#pragma once

#include <string>

#include "costmodel/io/json_file.h"

namespace stepsim {

/// Raises EnvironmentFault in a build without d3; the message says what to install and to rebuild.
void require_page();

/// Returns the whole page with its data (page_data.h). It is one file and needs no network.
/// Raises EnvironmentFault as require_page() does.
[[nodiscard]] std::string page_text(const Json& data);

/// Formats JSON for an HTML script element: in ASCII without '<', so that no text in it ends the
/// element or opens a comment. Bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string script_json(const Json& value);

}  // namespace stepsim
