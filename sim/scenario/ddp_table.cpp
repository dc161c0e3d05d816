#include <algorithm>
#include <string_view>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_units.h"
#include "sim/scenario/key_table.h"
#include "sim/scenario/tables.h"

namespace stepsim {
namespace {

constexpr int kMaxAccumulation = 100'000;

/// PyTorch's bucket_cap_mb_list. The largest limit is then DDP's bucket_cap, and that of its first
/// bucket as well, whatever was stated: its memory and what reads the cap go by it.
void read_bucket_caps(const TomlReader& table, Scenario& scenario) {
  DdpOptions& ddp = scenario.ddp;
  if (ddp.torch != DdpRules::Newest) {
    table.fail("bucket_caps",
               "a limit for each bucket (bucket_cap_mb_list of PyTorch 2.11) needs torch = "
               "\"newest\"");
  }
  if (ddp.bucket_rule != BucketRule::PyTorch) {
    table.fail("bucket_caps", "a limit for each bucket needs bucket_rule = \"pytorch\"");
  }
  for (const TomlValue& item : table.list("bucket_caps")) {
    const TomlReader limit(table.document(), item, "ddp.bucket_caps");
    const bool bytes = item.kind == TomlValue::Kind::Integer;
    if (!bytes && item.kind != TomlValue::Kind::Text) {
      limit.fail(
          fmt::format("expected a list of sizes as \"1 MiB\", or of bytes as integers, got {}",
                      describe(item)));
    }
    try {
      ddp.bucket_caps.push_back(parse_bytes(bytes ? std::to_string(item.integer) : item.text));
    } catch (const InputError& error) {
      limit.fail(error);
    }
    if (ddp.bucket_caps.back().value() < 1) {
      limit.fail("a size of 0 bytes; expected at least 1");
    }
  }
  if (ddp.bucket_caps.empty()) {
    table.fail("bucket_caps", "expected at least one size");
  }
  ddp.bucket_cap = ddp.first_bucket_cap = *std::ranges::max_element(ddp.bucket_caps);
}

/// An option that the hook does not take is a mistake.
void check_hook_options(const TomlReader& table, const TomlValue& value, CommunicationHook hook) {
  for (const TomlValue& item : value.children) {
    if (item.key == "kind" || takes_option(hook, item.key)) {
      continue;
    }
    std::vector<std::string_view> takers;
    for (const HookInfo& info : communication_hooks()) {
      if (takes_option(info.hook, item.key)) {
        takers.push_back(info.name);
      }
    }
    table.fail(item.key,
               fmt::format("does not apply to communication hook '{}'; {} {} it",
                           name_of(hook),
                           fmt::join(takers, ", "),
                           takers.size() == 1 ? "takes" : "take"));
  }
}

/// The subgroups are the nodes, unless `hook` says how many ranks each has.
void check_subgroups(const TomlReader& table, const TomlReader* hook, Scenario& scenario) {
  int& ranks = scenario.ddp.hook_options.subgroup_ranks;
  if (!takes_option(scenario.ddp.hook, "subgroup_ranks")) {
    return;
  }
  if (hook == nullptr || !hook->has("subgroup_ranks")) {
    if (!scenario.placement.is_even()) {
      table.fail("communication_hook",
                 fmt::format("{} reduces inside subgroups of equally many ranks, and the nodes "
                             "hold different numbers of them; say how many with subgroup_ranks",
                             name_of(scenario.ddp.hook)));
    }
    ranks = scenario.placement.fullest();
    return;
  }
  if (ranks > scenario.ranks) {
    hook->fail(
        "subgroup_ranks",
        fmt::format("{} is too large; expected at most {}, the ranks", ranks, scenario.ranks));
  }
  if (ranks > 0 && scenario.ranks % ranks != 0) {
    hook->fail("subgroup_ranks",
               fmt::format("{} ranks do not split into groups of {}", scenario.ranks, ranks));
  }
}

void read_hook(const TomlReader& table, Scenario& scenario) {
  const TomlValue& value = table.value("communication_hook");
  if (value.kind != TomlValue::Kind::Table) {
    scenario.ddp.hook = table.parsed("communication_hook", parse_communication_hook);
    check_subgroups(table, nullptr, scenario);
    return;
  }
  const TomlReader hook = table.table("communication_hook");
  read_keys(hook, scenario);
  check_hook_options(hook, value, scenario.ddp.hook);
  check_subgroups(table, &hook, scenario);
}

void read_mixed_precision(const TomlReader& table, Scenario& scenario) {
  const TomlReader mixed = table.table("mixed_precision");
  DdpOptions& ddp = scenario.ddp;
  const auto dtype = [](const std::string& name) { return parse_dtype(name); };
  ddp.mixed_param_dtype = mixed.parsed("param_dtype", dtype);
  ddp.mixed_reduce_dtype =
      mixed.has("reduce_dtype") ? mixed.parsed("reduce_dtype", dtype) : *ddp.mixed_param_dtype;
}

void read_unused_parameters(const TomlReader& table, Scenario& scenario) {
  std::vector<std::string> known = mapped(parameters(scenario.model), &Parameter::name);
  for (const TomlValue& item : table.list("unused_parameters")) {
    const TomlReader name(table.document(), item, "ddp.unused_parameters");
    if (item.kind != TomlValue::Kind::Text) {
      name.fail(fmt::format("expected a list of parameter names, got {}", describe(item)));
    }
    const auto found = std::ranges::find(known, item.text);
    if (found == known.end()) {
      name.fail(unknown_name("parameter", item.text, known));
    }
    scenario.ddp.unused_parameters.push_back(static_cast<int>(found - known.begin()));
  }
  std::vector<int>& unused = scenario.ddp.unused_parameters;
  std::ranges::sort(unused);
  unused.erase(std::unique(unused.begin(), unused.end()), unused.end());
  if (unused.size() == known.size()) {
    table.fail("unused_parameters",
               "lists every parameter of the model, so that none has a gradient to reduce; list "
               "those alone that no loss depends on");
  }
}

void read_join(const TomlReader& table, Scenario& scenario) {
  std::vector<int>& join_steps = scenario.ddp.join_steps;
  for (const TomlValue& item : table.list("join")) {
    const TomlReader steps(table.document(), item, "ddp.join");
    if (item.kind != TomlValue::Kind::Integer || item.integer < 0 || item.integer > kMaxSteps) {
      steps.fail(fmt::format("expected the number of steps that a rank has inputs for, got {}",
                             describe(item)));
    }
    join_steps.push_back(static_cast<int>(item.integer));
  }
  if (static_cast<int>(join_steps.size()) != scenario.ranks) {
    table.fail("join",
               fmt::format("{} numbers of steps for {} ranks; expected one for each rank",
                           join_steps.size(),
                           scenario.ranks));
  }
  if (*std::ranges::max_element(join_steps) < scenario.steps) {
    table.fail("join",
               fmt::format("no rank has inputs for the {} steps of the scenario", scenario.steps));
  }
}

/// Keys that say nothing to the rule by which buckets are made.
void check_bucket_rule(const TomlReader& table, const DdpOptions& ddp) {
  const bool has_cap =
      ddp.bucket_rule == BucketRule::PyTorch || ddp.bucket_rule == BucketRule::BeforeCap;
  if (!has_cap && table.has("bucket_cap")) {
    table.fail(
        "bucket_cap",
        ddp.bucket_rule == BucketRule::Single
            ? "has no effect: with bucket_rule = \"single\" one bucket holds all tensors"
            : "has no effect: with bucket_rule = \"per_parameter\" every tensor has a bucket "
              "of its own");
  }
  if (ddp.bucket_rule != BucketRule::PyTorch && table.has("first_bucket_cap")) {
    table.fail("first_bucket_cap",
               "has no effect: only bucket_rule = \"pytorch\" has a limit of the first bucket");
  }
}

/// `zero_stage = 3` is the old spelling of a kind of its own.
void choose_zero3(const TomlReader& root, const TomlReader& table, Scenario& scenario) {
  const Parallelism& zero3 = parallelism_named("zero3");
  const bool is_three = scenario.ddp.zero_stage == 3;
  const bool chosen = root.has("parallel");
  if (chosen && table.has("zero_stage") && is_three != (scenario.parallel == &zero3)) {
    table.fail("zero_stage",
               fmt::format("{} contradicts parallel.kind = \"{}\": leave one of them out",
                           scenario.ddp.zero_stage,
                           scenario.parallel->name()));
  }
  scenario.parallel = is_three ? &zero3 : scenario.parallel;
}

}  // namespace

std::vector<Key> ddp_keys() {
  using D = DdpOptions;
  const auto ddp = [](auto member) { return field(&Scenario::ddp, member); };
  return {
      touching(Stage::Reduced,
               size("bucket_cap", ddp(&D::bucket_cap), "size at which a gradient bucket is full")),
      touching(
          Stage::Reduced,
          size("first_bucket_cap", ddp(&D::first_bucket_cap), "the same for the first bucket")),
      touching(
          Stage::Reduced,
          holding(
              Quantity::Size,
              described("bucket_caps",
                        "PyTorch's `bucket_cap_mb_list`, with `torch = \"newest\"`: a limit for "
                        "each bucket "
                        "in "
                        "turn, `[\"1 MiB\", \"25 MiB\"]`, the last one repeats; in the first "
                        "iteration, too, "
                        "where it goes by the order of registration. It replaces `bucket_cap` and "
                        "`first_bucket_cap` by its largest limit",
                        "none"))),
      touching(
          Stage::Reduced,
          flag("last_bucket_cap",
               ddp(&D::last_bucket_cap),
               "the small bucket of `first_bucket_cap` comes last (`DDP_SET_LAST_BUCKET_CAP=1`)")),
      choice(
          "bucket_rule",
          ddp(&D::bucket_rule),
          {{"pytorch", BucketRule::PyTorch},
           {"before_cap", BucketRule::BeforeCap},
           {"per_parameter", BucketRule::PerParameter},
           {"single", BucketRule::Single}},
          "`\"pytorch\"`, or a hand-written loop in reverse order of registration: "
          "`\"before_cap\"` (a tensor that would exceed `bucket_cap` opens the next bucket), "
          "`\"per_parameter\"`, `\"single\"`. From `--set` or `--over` it replaces the caps that "
          "mean nothing to it"),
      choice("optimize_ddp",
             ddp(&D::optimize_ddp),
             {{"eager", OptimizeDdp::Eager},
              {"ddp_optimizer", OptimizeDdp::DdpOptimizer},
              {"no_optimization", OptimizeDdp::NoOptimization}},
             "what `torch.compile` makes of the model inside DDP: `\"eager\"`: it is not compiled; "
             "`\"ddp_optimizer\"` (torch.compile's default, 2.0 and later): graphs of "
             "`bucket_cap`, the first of 1 MiB, whose gradients become ready together; "
             "`\"no_optimization\"`: one graph. Kernels are those of `model.kernels`"),
      flag("overlap", ddp(&D::overlap), "false: nothing is launched before the backward's end"),
      choice("torch",
             ddp(&D::torch),
             {{name_of(DdpRules::Torch24), DdpRules::Torch24},
              {name_of(DdpRules::Torch18), DdpRules::Torch18},
              {name_of(DdpRules::Torch113), DdpRules::Torch113},
              {name_of(DdpRules::Newest), DdpRules::Newest}},
             "`\"1.8\"` (the first iteration's buckets have the limits, too), `\"1.13\"`, "
             "`\"2.4\"`, `\"newest\"`; with `newest`, `first_bucket_cap` follows a `bucket_cap` "
             "that is set"),
      flag("gradient_as_bucket_view",
           ddp(&D::gradient_as_bucket_view),
           "gradients live in the buckets: no copies out of them. The kernel that divides a "
           "gradient by the ranks stays, and costs what the copy into the bucket does"),
      flag("set_to_none", ddp(&D::set_to_none), "gradients are dropped between steps, not zeroed"),
      flag("find_unused_parameters", ddp(&D::find_unused_parameters), "buckets are never rebuilt"),
      custom("unused_parameters",
             read_unused_parameters,
             "names of parameters without a gradient, as `state_dict()` has them; needs "
             "`find_unused_parameters` or `static_graph`",
             "none"),
      flag("static_graph",
           ddp(&D::static_graph),
           "as torch's: the first iteration reduces after its backward, all at once"),
      flag("broadcast_buffers",
           ddp(&D::broadcast_buffers),
           "rank 0's `model.buffers` are sent before a forward that follows a synchronised one"),
      flag("batched_grad_copy",
           ddp(&D::batched_grad_copy),
           "with `torch = \"newest\"`: one copy a bucket in place of one a gradient"),
      flag("optimizer_in_backward",
           ddp(&D::optimizer_in_backward),
           "each bucket's parameters are updated as soon as it is reduced, on a side stream"),
      touching(
          Stage::Planned,
          integer(
              "accumulation_steps",
              ddp(&D::accumulation_steps),
              {1, kMaxAccumulation},
              "micro-batches per optimizer step; from the second one on each gradient is added to "
              "the one before, which takes 1.5 times a copy of it")),
      flag("no_sync", ddp(&D::no_sync), "only the last micro-batch is reduced; false: each one"),
      touching(
          Stage::Planned,
          custom(
              "join",
              read_join,
              "`[12, 10]`: steps that each rank has inputs for, inside `join()`; a rank that has "
              "none left only takes part in collectives",
              "no `join()`")),
      flag("divide_by_initial_world_size",
           ddp(&D::divide_by_initial_world_size),
           "false: with `join`, gradients are divided by the ranks that are still active, which "
           "the host waits for"),
      custom("mixed_precision",
             read_mixed_precision,
             "`{ param_dtype = \"bf16\", reduce_dtype = \"f32\" }`: DDP's own; parameters are cast "
             "in the forward, gradients have `param_dtype`",
             "none; `reduce_dtype`: `param_dtype`"),
      custom("communication_hook",
             read_hook,
             "a name from the list of hooks below, or a table with `kind` and its options",
             documented(std::string(name_of(D().hook)))),
      integer("zero_stage",
              ddp(&D::zero_stage),
              {0, 3},
              "what is split over the ranks: 1 optimizer, 2 gradients too, 3 parameters too"),
      flag("zero_broadcast_by_rank",
           ddp(&D::zero_broadcast_by_rank),
           "ZeRO-1: one broadcast of new parameters a rank, not one a parameter"),
  };
}

std::vector<Key> communication_hook_keys() {
  const auto option = [](auto member) {
    return [member](Scenario & s) -> auto& {
      return s.ddp.hook_options.*member;
    };
  };
  using H = HookOptions;
  return {
      required(custom(
          "kind",
          [](const TomlReader& table, Scenario& s) {
            s.ddp.hook = table.parsed("kind", parse_communication_hook);
          },
          "a name from the list of hooks",
          "")),
      integer("rank", option(&H::rank), {1, 1 << 20}, "PowerSGD: rank of the factors"),
      integer("start_iteration",
              option(&H::start_iteration),
              {0},
              "PowerSGD, post-local SGD: plain all-reduce before this step"),
      number("min_compression_rate",
             option(&H::min_compression_rate),
             positive_number(),
             "PowerSGD: tensors that gain less stay as they are"),
      number("topk_fraction",
             option(&H::topk_fraction),
             {[](double value) { return value > 0 && value <= 1; },
              "a fraction of the elements, more than 0 and at most 1"},
             "top-k: share of a bucket's elements that is sent"),
      integer("subgroup_ranks",
              option(&H::subgroup_ranks),
              {0, kMaxRanks},
              "post-local SGD: ranks that still reduce every step; 0: none do",
              "the ranks of a node"),
      integer("period",
              option(&H::period),
              {1},
              "post-local SGD: steps between averages of all parameters"),
  };
}

void read_ddp(const TomlReader& root, Scenario& scenario) {
  if (scenario.parallel->name() == "zero3") {
    scenario.ddp.zero_stage = 3;
  }
  if (!root.has("ddp")) {
    return;
  }
  const TomlReader table = root.table("ddp");
  DdpOptions& ddp = scenario.ddp;
  read_keys(table, scenario);
  ddp.first_bucket_cap_stated = table.has("first_bucket_cap");
  if (ddp.torch == DdpRules::Newest && table.has("bucket_cap") && !ddp.first_bucket_cap_stated) {
    ddp.first_bucket_cap = ddp.bucket_cap;
  }
  if (table.has("bucket_caps")) {
    read_bucket_caps(table, scenario);
  }
  choose_zero3(root, table, scenario);
  check_bucket_rule(table, ddp);
}

}  // namespace stepsim
