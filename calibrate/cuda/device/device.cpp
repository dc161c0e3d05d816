#include "calibrate/cuda/device/device.h"

#include <array>

#include "calibrate/cuda/device/check_cuda.h"
#include "calibrate/cuda/device/module_loading.h"
#include "costmodel/base/input_error.h"

namespace stepsim::cuda {
namespace {

cudaEvent_t event_of(const Event& event) {
  return static_cast<cudaEvent_t>(event.handle());
}

int current_device() {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

void copy(
    const Stream& stream, void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  check_cuda(cudaMemcpyAsync(to, from, bytes, kind, static_cast<cudaStream_t>(stream.handle())),
             "cudaMemcpyAsync");
}

}  // namespace

void check_cuda(cudaError_t status, const char* call) {
  if (status != cudaSuccess) {
    // An error that is told here must not be found again by the next launch.
    static_cast<void>(cudaGetLastError());
    throw EnvironmentFault(std::string(call) + ": " + cudaGetErrorString(status) + " (" +
                           cudaGetErrorName(status) + ")");
  }
}

void use_device(int index) {
  load_kernels_at_start();
  check_cuda(cudaSetDevice(index), "cudaSetDevice");
}

DeviceInfo device_info() {
  const int device = current_device();
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  std::array<char, 32> bus_id{};
  check_cuda(cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), device),
             "cudaDeviceGetPCIBusId");
  DeviceInfo info;
  info.name = properties.name;
  info.bus_id = bus_id.data();
  info.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  info.l2_bytes = properties.l2CacheSize;
  info.multiprocessors = properties.multiProcessorCount;
  info.compute_major = properties.major;
  info.compute_minor = properties.minor;
  return info;
}

void synchronize_device() {
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

Stream::Stream() {
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
             "cudaStreamCreateWithFlags");
  handle_ = stream;
}

Stream::~Stream() {
  cudaStreamDestroy(static_cast<cudaStream_t>(handle_));
}

void Stream::wait(const Event& event) const {
  check_cuda(cudaStreamWaitEvent(static_cast<cudaStream_t>(handle_), event_of(event), 0),
             "cudaStreamWaitEvent");
}

void Stream::synchronize() const {
  check_cuda(cudaStreamSynchronize(static_cast<cudaStream_t>(handle_)), "cudaStreamSynchronize");
}

Event::Event() {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreate(&event), "cudaEventCreate");
  handle_ = event;
}

Event::~Event() {
  if (handle_ != nullptr) {
    cudaEventDestroy(event_of(*this));
  }
}

void Event::record(const Stream& stream) const {
  check_cuda(cudaEventRecord(event_of(*this), static_cast<cudaStream_t>(stream.handle())),
             "cudaEventRecord");
}

void Event::synchronize() const {
  check_cuda(cudaEventSynchronize(event_of(*this)), "cudaEventSynchronize");
}

double seconds_between(const Event& from, const Event& to) {
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, event_of(from), event_of(to)),
             "cudaEventElapsedTime");
  return static_cast<double>(milliseconds) * 1e-3;
}

DeviceBuffer::~DeviceBuffer() {
  cudaFree(data_);
}

void DeviceBuffer::release() {
  if (data_ != nullptr) {
    synchronize_device();
    check_cuda(cudaFree(std::exchange(data_, nullptr)), "cudaFree");
    bytes_ = 0;
  }
}

void DeviceBuffer::reserve(std::size_t bytes) {
  if (bytes <= bytes_) {
    return;
  }
  release();
  const std::string call = "cudaMalloc of " + std::to_string(bytes) + " bytes";
  check_cuda(cudaMalloc(&data_, bytes), call.c_str());
  bytes_ = bytes;
}

HostBuffer::~HostBuffer() {
  cudaFreeHost(data_);
}

void HostBuffer::reserve(std::size_t bytes) {
  if (bytes <= bytes_) {
    return;
  }
  synchronize_device();
  check_cuda(cudaFreeHost(std::exchange(data_, nullptr)), "cudaFreeHost");
  bytes_ = 0;
  const std::string call = "cudaHostAlloc of " + std::to_string(bytes) + " bytes";
  check_cuda(cudaHostAlloc(&data_, bytes, cudaHostAllocMapped), call.c_str());
  bytes_ = bytes;
}

void copy_to_device(const Stream& stream, void* device, const void* host, std::size_t bytes) {
  copy(stream, device, host, bytes, cudaMemcpyHostToDevice);
}

void copy_to_host(const Stream& stream, void* host, const void* device, std::size_t bytes) {
  copy(stream, host, device, bytes, cudaMemcpyDeviceToHost);
}

void set_zero(const Stream& stream, void* device, std::size_t bytes) {
  check_cuda(cudaMemsetAsync(device, 0, bytes, static_cast<cudaStream_t>(stream.handle())),
             "cudaMemsetAsync");
}

}  // namespace stepsim::cuda
