// Whole scenarios made of the bytes: valid more often than not, and small. Their predictions must
// keep what holds for every run, and the closed form must agree with the engine.

#include <array>
#include <cmath>
#include <stdexcept>
#include <string>

#include <fmt/format.h>

#include "sim/predict/predict.h"
#include "sim/scenario/scenario.h"
#include "tests/fuzz/door.h"

namespace stepsim::fuzz {

namespace {

/// Choices by the bytes of an input; at its end, always the first.
class Choices {
 public:
  explicit Choices(std::string_view bytes) : bytes_(bytes) {}

  int below(int count) {
    if (at_ >= bytes_.size()) {
      return 0;
    }
    return static_cast<unsigned char>(bytes_[at_++]) % count;
  }
  bool yes() { return below(2) == 1; }
  int from(int least, int most) { return least + below(most - least + 1); }
  template <std::size_t count>
  const char* one_of(const std::array<const char*, count>& texts) {
    return texts[static_cast<std::size_t>(below(static_cast<int>(count)))];
  }
  /// A time, 0 now and then.
  std::string time() {
    return fmt::format("\"{} {}\"", below(256), one_of(std::array{"us", "ns", "ms"}));
  }
  /// 0 to 1.
  double fraction() { return below(101) / 100.0; }

 private:
  std::string_view bytes_;
  std::size_t at_ = 0;
};

/// Scenarios; every function writes one table.
class ScenarioWriter {
 public:
  explicit ScenarioWriter(Choices choices) : choices_(choices) {}

  std::string text() {
    cluster();
    model();
    ddp();
    machine();
    data();
    for (int i = choices_.below(2); i >= 0; --i) {
      policy(i);
    }
    return text_;
  }

 private:
  void line(const std::string& text) { text_ += text + "\n"; }

  template <std::size_t count>
  void maybe(const char* key, const std::array<const char*, count>& texts) {
    if (choices_.yes()) {
      line(fmt::format("{} = {}", key, choices_.one_of(texts)));
    }
  }

  void cluster() {
    const int steps = choices_.from(2, 6);
    line("[scenario]\nname = \"made\"");
    line(fmt::format("seed = {}\nsteps = {}\nwarmup_steps = {}",
                     choices_.below(256),
                     steps,
                     choices_.below(steps)));
    ranks_ = choices_.from(1, 6);
    line(fmt::format("[cluster]\nranks = {}", ranks_));
    if (choices_.yes()) {
      line(fmt::format("ranks_per_node = {}", choices_.from(1, ranks_)));
    }
    if (choices_.yes()) {
      line(fmt::format("slow_ranks = [{{ rank = {}, factor = {} }}]",
                       choices_.below(ranks_),
                       0.5 + choices_.fraction()));
    }
    maybe("communicator", std::array{"\"gloo\"", "\"in_order\""});
    maybe("skew", std::array{"0.3", "3.0", "0.0"});
    maybe("jitter", std::array{"0.05", "0.5"});
    maybe("cores", std::array{"1", "1.5", "0", "3"});
    line(
        fmt::format("topology = {{ algorithm = \"{}\", intra_latency = {}, intra_bandwidth = \"{} "
                    "MB/s\", inter_latency = {}, inter_bandwidth = \"{} MB/s\" }}",
                    choices_.one_of(std::array{"auto",
                                               "nccl",
                                               "flat_ring",
                                               "tree",
                                               "hierarchical",
                                               "ring",
                                               "recursive_doubling",
                                               "rabenseifner"}),
                    choices_.time(),
                    1 + choices_.below(256),
                    choices_.time(),
                    1 + choices_.below(256)));
  }

  void model() {
    const int heads = choices_.from(1, 4);
    line(fmt::format("[model]\nlayers = {}", choices_.from(1, 4)));
    if (choices_.below(3) == 0) {
      line(fmt::format("kind = \"blocks\"\nblock_elements = {}", 1 + choices_.below(256) * 1000));
      blocks_ = true;
    } else {
      line(fmt::format("kind = \"{}\"\nhidden = {}\nheads = {}\nvocab = {}\nmax_length = 64",
                       choices_.one_of(std::array{
                           "gpt2", "llama", "nanochat", "bert", "distilbert", "token_classifier"}),
                       heads * 8,
                       heads,
                       1 + choices_.below(200)));
      maybe("attention", std::array{"\"flash\"", "\"varlen\"", "\"dense\""});
      maybe("window", std::array{"8", "1", "100"});
      maybe("checkpointing", std::array{"true", "false"});
      maybe("dtype", std::array{"\"bf16\"", "\"f64\"", "\"tf32\""});
    }
    maybe("parameter_dtype", std::array{"\"bf16\"", "\"f32\"", "\"f64\""});
    maybe("buffers", std::array{"{ f32 = 530, i64 = 3 }", "{ f32 = 0 }"});
  }

  void ddp() {
    line("[ddp]");
    maybe("bucket_cap", std::array{"\"1 KiB\"", "\"1 B\"", "\"1 MiB\"", "\"10 KiB\""});
    maybe("first_bucket_cap", std::array{"\"1 KiB\"", "\"1 B\"", "\"1 MiB\""});
    maybe("bucket_rule", std::array{"\"before_cap\"", "\"per_parameter\"", "\"single\""});
    maybe("overlap", std::array{"false", "true"});
    maybe("torch", std::array{"\"1.8\"", "\"1.13\"", "\"2.4\"", "\"newest\""});
    maybe("find_unused_parameters", std::array{"true", "false"});
    maybe("static_graph", std::array{"true", "false"});
    maybe("optimizer_in_backward", std::array{"true", "false"});
    maybe("accumulation_steps", std::array{"2", "3"});
    maybe("no_sync", std::array{"false", "true"});
    maybe("zero_stage", std::array{"1", "2", "3"});
    maybe("last_bucket_cap", std::array{"true", "false"});
    maybe("gradient_as_bucket_view", std::array{"true", "false"});
    maybe("optimize_ddp", std::array{"\"ddp_optimizer\"", "\"no_optimization\""});
    maybe("mixed_precision",
          std::array{"{ param_dtype = \"bf16\" }",
                     "{ param_dtype = \"f16\", reduce_dtype = \"f32\" }"});
    maybe("communication_hook",
          std::array{"\"allreduce\"",
                     "\"fp16\"",
                     "{ kind = \"power_sgd\", rank = 2, start_iteration = 2 }",
                     "{ kind = \"batched_power_sgd\", start_iteration = 0 }",
                     "\"top_k\"",
                     "\"quantize_per_tensor\"",
                     "\"quantize_per_channel\"",
                     "{ kind = \"post_local_sgd\", start_iteration = 1, period = 2 }",
                     "\"noop\""});
  }

  void machine() {
    if (blocks_ || choices_.yes()) {
      line(fmt::format("[times]\nforward = {}\nbackward = {}\noptimizer = {}",
                       choices_.time(),
                       choices_.time(),
                       choices_.time()));
      maybe("tokens", std::array{"100", "1"});
    }
    if (choices_.yes()) {
      line("[interference]");
      maybe("compute", std::array{"0.3", "2.0", "0"});
      maybe("transfer", std::array{"0.3", "2.0", "0"});
      maybe("multiprocessors", std::array{"132", "1"});
      maybe("memory_share", std::array{"0.2", "0.9"});
      maybe("while_waiting", std::array{"false", "true"});
    }
    if (choices_.yes()) {
      line("[host]");
      for (const char* key : {"launch", "enqueue", "hook", "python_hook", "sync"}) {
        if (choices_.yes()) {
          line(fmt::format("{} = {}", key, choices_.time()));
        }
      }
      maybe("queue_depth", std::array{"1", "3", "100"});
      maybe("step_sync", std::array{"true", "false"});
      maybe("copy_bandwidth", std::array{"\"1 MB/s\"", "\"20 GB/s\""});
    }
    if (choices_.yes()) {
      line(
          fmt::format("[noise]\nop_jitter = {}\nrank_speed = {}\nstall_probability = {}\nstall = "
                      "{}\nloader_stall_probability = {}\nloader_stall = {}",
                      choices_.fraction() / 2,
                      choices_.fraction() / 2,
                      choices_.fraction(),
                      choices_.time(),
                      choices_.fraction(),
                      choices_.time()));
    }
    if (choices_.below(4) == 3) {
      line(fmt::format(
          "[new_shapes]\nmechanisms = [{{ kind = \"{}\", forward = {}, key = \"{}\", entries = {}, "
          "eviction = \"{}\", shared = {} }}]",
          choices_.one_of(std::array{"attention_plan", "convolution", "cuda_graph", "other"}),
          choices_.time(),
          choices_.one_of(std::array{"samples_length", "length", "samples", "tokens", "largest"}),
          choices_.from(1, 3),
          choices_.one_of(std::array{"least_recent", "oldest", "none"}),
          choices_.yes()));
    }
  }

  void data() {
    line(fmt::format("[data]\nsamples = {}", ranks_ + choices_.below(120)));
    const int most = choices_.from(1, 64);
    line(fmt::format("lengths = {{ {} }}",
                     choices_.yes() ? fmt::format("constant = {}", most)
                                    : fmt::format("uniform = [1, {}], seed = 1", most)));
    if (choices_.yes()) {
      line(fmt::format(
          "sampler = {{ kind = \"{}\", shuffle = {}, seed = {}, drop_last = {}, set_epoch = {} }}",
          choices_.one_of(std::array{"python", "distributed"}),
          choices_.yes(),
          choices_.below(256),
          choices_.yes(),
          choices_.yes()));
    }
    maybe("workers", std::array{"1", "3"});
    maybe("prefetch", std::array{"1", "5"});
    if (choices_.yes()) {
      line(fmt::format("loading = {{ batch = {}, per_token = {}, plan_every = {}, plan = {} }}",
                       choices_.time(),
                       "\"3 us\"",
                       choices_.from(1, 5),
                       choices_.time()));
    }
  }

  void policy(int number) {
    line(fmt::format("[[policy]]\nname = \"policy{}\"", number));
    const int size = choices_.from(1, 9);
    const int budget = 64 * choices_.from(1, 8);
    static constexpr std::array kBySize = {"fixed",
                                           "bucketed",
                                           "local_sort",
                                           "hf_group_by_length",
                                           "batch_rebalance",
                                           "karmarkar_karp",
                                           "lpt",
                                           "load_balancing",
                                           "dynapipe",
                                           "planner"};
    static constexpr std::array kByBudget = {"token_budget",
                                             "local_token_budget",
                                             "fairseq_max_tokens",
                                             "automodel_dynamic_token",
                                             "deepspeed_variable_batch"};
    static constexpr std::array kPacked = {"packed_bfd",
                                           "packed_bfd_split",
                                           "packed_wrapped",
                                           "packed_best_fit_crop",
                                           "packed_first_fit",
                                           "packed_next_fit",
                                           "packed_knapsack",
                                           "packed_longalign",
                                           "packed_histogram",
                                           "multipack"};
    switch (choices_.below(3)) {
      case 0:
        line(fmt::format("kind = \"{}\"\nbatch_size = {}", choices_.one_of(kBySize), size));
        break;
      case 1:
        line(fmt::format("kind = \"{}\"\nmax_tokens = {}", choices_.one_of(kByBudget), budget));
        break;
      default:
        line(fmt::format("kind = \"{}\"\ncapacity = {}", choices_.one_of(kPacked), budget));
        break;
    }
    maybe("weighting", std::array{"\"sample\"", "\"token\""});
    maybe("pad_to_multiple_of", std::array{"8", "64"});
  }

  Choices choices_;
  std::string text_;
  int ranks_ = 1;
  bool blocks_ = false;
};

/// Milliseconds, within what rounding to nanoseconds may do to sums of them.
bool at_most(double a, double b) {
  return a <= b + 1e-4 + 1e-9 * std::abs(b);
}

void check_times(const RankTimes& times, const std::string& of) {
  for (const double part : {times.data_ms,
                            times.forward_ms,
                            times.backward_ms,
                            times.exposed_ms,
                            times.waiting_ms,
                            times.optimizer_ms,
                            times.step_ms}) {
    require(std::isfinite(part) && part >= 0, of + ": a time that is negative or no number");
  }
  const double sum =
      times.data_ms + times.forward_ms + times.backward_ms + times.exposed_ms + times.optimizer_ms;
  require(at_most(sum, times.step_ms) && at_most(times.step_ms, sum),
          of + fmt::format(": parts of {} ms in a step of {} ms", sum, times.step_ms));
  require(at_most(times.waiting_ms, times.exposed_ms), of + ": more waiting than exposed");
}

/// Whether the compute stream waits for nothing else than collectives: no hook, no update and no
/// copy on a side stream, no worker threads of gloo.
bool waits_for_collectives_alone(const Scenario& scenario) {
  const DdpOptions& ddp = scenario.ddp;
  return !scenario.gloo && !ddp.optimizer_in_backward && !ddp.mixed_param_dtype &&
         ddp.hook == CommunicationHook::None && ddp.zero_stage == 0;
}

void check_prediction(const Scenario& scenario, const Prediction& prediction) {
  const PredictionSummary& summary = prediction.summary;
  const StepTimeSummary& step = summary.step_time_ms;
  for (const double value : {step.mean,
                             step.p50,
                             step.low90,
                             step.high90,
                             summary.communication_ms,
                             summary.useful_tokens_per_step,
                             summary.padded_tokens_per_step,
                             summary.peak_memory_mib}) {
    require(std::isfinite(value) && value >= 0, "a figure that is negative or no number");
  }
  // The longest step is a mean over runs with noise, which quantiles over all of them may exceed.
  require(at_most(step.p50, step.p95) && at_most(step.p95, step.p99) && step.max >= 0,
          fmt::format("quantiles {}, {}, {} of {} ms", step.p50, step.p95, step.p99, step.max));
  require(step.low90 <= step.high90, "an interval upside down");
  require(summary.overlap_fraction >= 0 && summary.overlap_fraction <= 1 + 1e-9,
          "an overlap that is no share");
  require(!waits_for_collectives_alone(scenario) ||
              at_most(summary.exposed_transfer_ms(), summary.communication_ms),
          fmt::format("{} ms of transfers exposed, {} in all",
                      summary.exposed_transfer_ms(),
                      summary.communication_ms));
  require(at_most(summary.useful_tokens_per_step, summary.padded_tokens_per_step),
          "more useful tokens than padded ones");
  for (const RankStepResult& row : prediction.steps) {
    check_times(row, fmt::format("step {} of rank {}", row.step, row.rank));
    require(row.useful_tokens <= row.padded_tokens && row.samples >= 0, "tokens of a step");
  }
  for (const RankMeans& rank : prediction.ranks) {
    check_times(rank, "means of a rank");
  }
}

void check_scenario(const std::string& text) {
  const std::string path = source_path("scenarios/made.toml");
  static const Profile profile =
      read_profile(source_path("scenarios/profiles/h100_8x_published.json"));
  const Scenario scenario = parse_scenario(text, path);
  for (const BatchingPolicy& policy : scenario.policies) {
    (void)accepts([&] {
      PredictOptions options;
      options.noise_runs = 0;
      options.threads = 1;
      const Prediction played = predict(scenario, policy, profile, options);
      check_prediction(scenario, played);
      options.engine = true;
      const Prediction by_engine = predict(scenario, policy, profile, options);
      check_prediction(scenario, by_engine);
      // The closed form leaves out the two small broadcasts of the rebuild before the second step.
      const double difference =
          std::abs(played.summary.step_time_ms.p50 - by_engine.summary.step_time_ms.p50);
      require(difference <= 0.3 + 0.1 * by_engine.summary.step_time_ms.max,
              fmt::format("closed form {} ms, engine {} ms",
                          played.summary.step_time_ms.p50,
                          by_engine.summary.step_time_ms.p50));
      options.engine = false;
      options.noise_runs = 2;
      check_prediction(scenario, predict(scenario, policy, profile, options));
    });
  }
}

}  // namespace

void enter_simulation(std::string_view input) {
  const std::string text = ScenarioWriter(Choices(input)).text();
  try {
    check_scenario(text);
  } catch (const std::logic_error& error) {
    throw std::logic_error(text + "\n" + error.what());
  }
}

}  // namespace stepsim::fuzz
