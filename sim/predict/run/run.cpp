#include "sim/predict/run/run.h"

namespace stepsim {

Run::Run(const Job& job, std::optional<Counterfactual> counterfactual)
    : PlannedJob(job, counterfactual),
      priced_(this->job().stages().priced->get([&] {
        return std::make_shared<const PricedBatches>(scenario(), this->job().profile(), planned());
      })),
      reduced_(scenario(), profile(), planned(), *priced_),
      loads_(run_loads(scenario(), profile(), planned(), *priced_, this->counterfactual())) {}

}  // namespace stepsim
