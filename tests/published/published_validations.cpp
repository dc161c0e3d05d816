// Published measurements beside our predictions: published_validations > tests/published/RESULTS.md
//
// usage: published_validations [--tensors NET] [--data DIR]
// --tensors prints the list of a network (resnet50, …) as scenarios/published holds it.
#include <cstdlib>
#include <string>

#include <fmt/core.h>

#include "costmodel/base/input_error.h"
#include "tests/published/resnet.h"
#include "tests/published/validation.h"
#include "tests/source_root.h"

namespace stepsim::published {
namespace {

std::string default_data() {
  return test::data_folder();
}

void print_tensors(const std::string& name) {
  for (const ResNet& net : resnets()) {
    if (net.name == name) {
      fmt::print("{}", tensors_csv(resnet_tensors(net, 32), Weighting::Roofline));
      return;
    }
  }
  throw InputError("no network " + name);
}

int run(int argc, char** argv) {
  const std::string option = argc == 3 ? argv[1] : "";
  if (option == "--tensors") {
    print_tensors(argv[2]);
  } else if (option == "--data" || argc == 1) {
    fmt::print("{}", results(argc == 1 ? default_data() : argv[2]));
  } else {
    throw InputError("usage: published_validations [--tensors NET | --data DIR]");
  }
  return 0;
}

}  // namespace
}  // namespace stepsim::published

int main(int argc, char** argv) {
  try {
    return stepsim::published::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "published_validations: {}\n", error.what());
    return 2;
  }
}
