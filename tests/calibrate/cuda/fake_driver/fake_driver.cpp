// Stands for libcuda.so.1 where there is no GPU, so far that cuDNN finalises execution plans of a
// device that is described to it: cuDNN compiles its kernels itself, and then only asks the driver
// to load what it has compiled. These functions say that it is loaded; nothing can be launched. All
// others are those of the toolkit's stub, which this library depends on.

#include <cstdint>

#include <cuda.h>

namespace {

/// Something to point to.
int nowhere = 0;

template <typename Handle>
CUresult give(Handle* handle) {
  *handle = reinterpret_cast<Handle>(&nowhere);
  return CUDA_SUCCESS;
}

}  // namespace

// NOLINTBEGIN: CUDA's names
extern "C" {

CUresult cuLibraryLoadData(CUlibrary* library,
                           const void* /*code*/,
                           CUjit_option* /*jit_options*/,
                           void** /*jit_values*/,
                           unsigned /*jit_count*/,
                           CUlibraryOption* /*options*/,
                           void** /*values*/,
                           unsigned /*count*/) {
  return give(library);
}

CUresult cuLibraryUnload(CUlibrary /*library*/) {
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary /*library*/, const char* /*name*/) {
  return give(kernel);
}

CUresult cuLibraryGetKernelCount(unsigned* count, CUlibrary /*library*/) {
  *count = 1;
  return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned count, CUlibrary /*library*/) {
  for (unsigned i = 0; i < count; ++i) {
    give(kernels + i);
  }
  return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel /*kernel*/) {
  return give(function);
}

CUresult cuKernelGetAttribute(int* value,
                              CUfunction_attribute attribute,
                              CUkernel /*kernel*/,
                              CUdevice /*device*/) {
  constexpr int kThreads = 1024;
  *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? kThreads : 0;
  return CUDA_SUCCESS;
}

CUresult cuKernelSetAttribute(CUfunction_attribute /*attribute*/,
                              int /*value*/,
                              CUkernel /*kernel*/,
                              CUdevice /*device*/) {
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction /*function*/) {
  return cuKernelGetAttribute(value, attribute, nullptr, 0);
}

CUresult cuFuncSetAttribute(CUfunction /*function*/,
                            CUfunction_attribute /*attribute*/,
                            int /*value*/) {
  return CUDA_SUCCESS;
}
}
// NOLINTEND
