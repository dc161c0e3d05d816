#include "sim/report/html/page_source.h"

namespace stepsim {

const PageSource* page_source() {
  return nullptr;
}

}  // namespace stepsim
