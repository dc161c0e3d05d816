// In place of cli_backend_cuda.cpp when the CUDA toolkit or one of its libraries is not there.
#include "calibrate/cli/backend.h"
#include "costmodel/base/input_error.h"

namespace stepsim {

BackendFactory cuda_backend_factory(int /*first_device*/) {
  throw EnvironmentFault(
      "this stepcal was built without the CUDA backend: install the CUDA toolkit with cuBLAS, "
      "cuDNN 9 and NCCL, then meson setup --reconfigure and build again (its summary says what is "
      "missing)");
}

}  // namespace stepsim
