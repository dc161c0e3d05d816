#pragma once

#include <string>
#include <vector>

#include "sim/ask/request.h"
#include "sim/report/html/page_data.h"
#include "sim/report/sweep/sweep_report.h"

namespace stepsim {

/// What the page of any command states. Made now, or at $SOURCE_DATE_EPOCH.
[[nodiscard]] PageContent page_content(const Request& request, const Scenario& scenario);

/// Bucket caps of one policy: timelines of the step that is the median of `prediction`.
void add_bucket_cap_sweep(Jobs& jobs, const Prediction& prediction, PageContent& content);

/// One setting, which `prediction` is of: a timeline of the step that is its median.
void add_timeline(Jobs& jobs,
                  const std::vector<Setting>& settings,
                  const Prediction& prediction,
                  PageContent& content);

/// A sweep of one key: a timeline a point, of the step that is the median of the reference. Of many
/// points some, the best one among them; of bucket caps DDP's default, too.
void add_sweep(Jobs& jobs, const SweepAxis& axis, const SweepReport& report, PageContent& content);

/// What would save most in a policy's step, as `stepsim blame` says it; of more than eight ranks
/// those that were last most often are tried with the median load.
void add_blame(const Job& job, PageContent& content);

/// The predictions as --json writes them, but without the rows of single steps where there are so
/// many that they would make the page slow; its series have most of what they say.
[[nodiscard]] Json page_result(const std::vector<Prediction>& predictions);

/// Returns the page of `stepsim compare`: each policy's timeline, that of the recommended one at
/// other bucket caps, and what it could save. `answers`: what the result holds beside the
/// predictions. `kept`: the policy that runs already, see recommend(); `headline`:
/// empty: that of the recommendation.
[[nodiscard]] std::string compare_page(PageContent content,
                                       Jobs& jobs,
                                       const std::vector<Prediction>& predictions,
                                       const Json& answers,
                                       const std::string& kept = "",
                                       const std::string& headline = "");

}  // namespace stepsim
