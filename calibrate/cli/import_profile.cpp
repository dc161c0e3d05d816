#include "calibrate/cli/import_profile.h"

#include "costmodel/terminal/commands.h"

namespace stepsim {

ProfileRequest profile_request(const OptionParser& parser) {
  return {parser.text("profile"), parser.text("base"), parser.command_line()};
}

void write_imported(const std::string& out, const ImportedProfile& imported) {
  write_profile(out, imported.profile);
  if (out != "-") {
    print_report(import_text(imported, out, output_screen()));
  }
}

}  // namespace stepsim
