#include "sim/predict/draws/lane_loops.h"

#include "costmodel/base/target_clones.h"

namespace stepsim {

STEPSIM_TARGET_CLONES void go_on(const double* device,
                                 const double* host,
                                 const double* by_device,
                                 const double* by_host,
                                 std::size_t lanes,
                                 double* out) {
  for (std::size_t l = 0; l < lanes; ++l) {
    const double a = device[l] + by_device[l];
    const double b = host[l] + by_host[l];
    out[l] = a > b ? a : b;
  }
}

STEPSIM_TARGET_CLONES void work_times(const double* slowness,
                                      const double* load,
                                      const double* model,
                                      const double* ddp,
                                      std::size_t lanes,
                                      double* out) {
  for (std::size_t l = 0; l < lanes; ++l) {
    out[l] = slowness[l] * (load[l] * model[l] + ddp[l]);
  }
}

STEPSIM_TARGET_CLONES void work_on(const double* host,
                                   double launched,
                                   const double* launch,
                                   const double* work,
                                   std::size_t lanes,
                                   double* device) {
  for (std::size_t l = 0; l < lanes; ++l) {
    const double there = host[l] + launched * launch[l];
    device[l] = (device[l] > there ? device[l] : there) + work[l];
  }
}

STEPSIM_TARGET_CLONES void work_later_on(const double* host,
                                         double launched,
                                         const double* launch,
                                         const double* critical,
                                         std::size_t lanes,
                                         double* device) {
  for (std::size_t l = 0; l < lanes; ++l) {
    const double there = host[l] + launched * launch[l] + critical[l];
    device[l] = device[l] > there ? device[l] : there;
  }
}

STEPSIM_TARGET_CLONES void add_launches(const double* device,
                                        const double* host,
                                        const double* by_device,
                                        const double* by_host,
                                        std::size_t buckets,
                                        std::size_t lanes,
                                        double* latest) {
  for (std::size_t b = 0; b < buckets; ++b) {
    for (std::size_t l = 0; l < lanes; ++l) {
      const double on_device = device[l] + by_device[l];
      const double on_host = host[l] + by_host[l];
      const double launch = on_device > on_host ? on_device : on_host;
      latest[l] = launch > latest[l] ? launch : latest[l];
    }
    by_device += lanes;
    by_host += lanes;
    latest += lanes;
  }
}

}  // namespace stepsim
