// Stands for libnvidia-ml.so.1 beside the emulated device: the second time it is asked, heat holds
// the clock down.

extern "C" {

int fake_nvml_reads = 0;  ///< How often the reasons for a held clock were asked for.

int nvmlInit_v2() {
  return 0;
}
int nvmlShutdown() {
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* /*bus*/, void** device) {
  *device = &fake_nvml_reads;
  return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* /*device*/, unsigned long long* reasons) {
  constexpr unsigned long long kThermalSlowdown = 0x40;
  *reasons = ++fake_nvml_reads == 2 ? kThermalSlowdown : 0;
  return 0;
}
}
