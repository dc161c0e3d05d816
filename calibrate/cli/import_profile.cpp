#include "calibrate/cli/import_profile.h"

#include <utility>

namespace stepsim {

Answer profile_answer(const std::string& out, ImportedProfile imported) {
  write_profile(out, imported.profile);
  Answer answer;
  answer.text = [=, imported = std::move(imported)](const Screen& screen) {
    return import_text(imported, out, screen);
  };
  return answer;
}

}  // namespace stepsim
