#include "sim/report/glossary.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "sim/report/markdown.h"

namespace stepsim {

namespace {

// clang-format off
const std::vector<Term> kTerms = {
    {"90 % interval", {"interval", "gain, 90 %", "vs best, 90 %", "1 faster by", "in interval"},
     "Where the mean step time (or the gain) of a run lies in 90 of 100 runs, by the errors of the profile and the noise "
     "of the machine. It is of the mean over the steps, not of single steps: for those see p95. \"At any hour\" holds "
     "the machine's drift, \"in the hour of its calibration\" leaves it out."},
    {"backward", {},
     "Milliseconds that a rank computes gradients, without the wait for collectives after it."},
    {"bucket", {"buckets", "bucket cap", "bucket size", "gradients"},
     "Gradients that DDP reduces together, in one all-reduce. bucket_cap_mb bounds its bytes: small buckets start early "
     "and pay a latency each, large ones hide less behind the backward."},
    {"change", {"before", "99 % interval", "tokens of the fullest rank"},
     "Of two records: how much longer (+) or shorter (-) a step takes after than before, and where that lies in 99 of 100 "
     "such pairs of runs. Steps whose fullest rank has about as many tokens are compared with each other."},
    {"collectives", {"communication", "communication_ms"},
     "Milliseconds that all collectives of a step take one by one: all-reduces under DDP, gathers and reductions under "
     "FSDP. They are either hidden behind compute or exposed; hidden and exposed add up to them."},
    {"costs of ops", {"of collectives"},
     "Where the prices of a row come from: measured, published (others' figures), scenario (times in its file), "
     "interpolated between numbers of ranks, extrapolated beyond what was measured, links (closed forms), NCCL model."},
    {"data", {"loading"},
     "Milliseconds that the training waits for its next batch, collation and copy to the device included."},
    {"drift", {"in the hour of its calibration", "same hour"},
     "How much the same work differs in time between hours of one machine. It is in every 90 % interval, and cancels in "
     "gains, since both sides run on the same machine."},
    {"efficiency", {"scaling efficiency"},
     "Of a policy: the share of the step in which a rank works, without waiting for others or for communication. Of a "
     "cluster, beside samples/s: its samples per second and rank over the most that a cluster of the table has."},
    {"epoch", {},
     "One pass over all samples, in as many steps as a policy needs for them. Lost samples, skew and order change are of "
     "the first epoch, and its largest batch decides what fits into memory; step times are of its first steps."},
    {"error", {"p50 error", "p95 error", "per-step error"},
     "Predicted less measured over measured: -5 % is predicted too short. Per step: the mean over the steps of each "
     "one's own error, whatever its sign."},
    {"exposed", {"exposed communication", "waiting for gradients"},
     "Milliseconds in which a rank's device is idle after its backward (under FSDP: within its passes) while "
     "collectives move data. Beside collectives a rank can be exposed to copies around them and to a host that starts "
     "them late; `stepsim run` says how much. Idle because a slower rank has not arrived is waiting, not exposed."},
    {"first meetings", {"stalled steps", "lost s", "warm step", "cured", "new shapes"},
     "A rank pays once for each shape of a batch that it has not met: compiled graphs, plans of cuDNN, memory. Stalled "
     "steps have one; a warm step has none."},
    {"forward", {}, "Milliseconds that a rank computes its loss."},
    {"frontier", {"efficient"},
     "A cluster is efficient where no other of the table has more samples per second at as many per rank."},
    {"gain", {"vs best", "over 25 MiB", "over the scenario's", "gap"},
     "How many more useful tokens per second one setting gives than another: +8 % is 1.08 times as many. Both sides are "
     "drawn with the same errors of the profile where they are the same."},
    {"GPU-hours", {"hours", "cost", "training"},
     "Hours of training times ranks; with --gpu-hour PRICE also money."},
    {"host", {"the host launched kernels in no time"},
     "The host (CPU) starts every kernel of the GPU, some microseconds each. Where that takes longer than the kernels, "
     "the host bounds the step: neither faster collectives nor other buckets help, larger batches, torch.compile and "
     "CUDA graphs do."},
    {"Kendall tau", {"order of the policies"},
     "Whether policies come in the predicted order when measured: 1 is the same order, 0 none, -1 the reverse."},
    {"lost samples", {"tokens left out", "repeated"},
     "Samples that are in no batch of an epoch (the end of it, too long ones), and such that come more than once."},
    {"memory", {"peak memory", "most memory"},
     "The most memory of any rank at any moment of a step: parameters, gradients, optimizer states, buckets or gathered "
     "units, activations, logits. By formula or played event by event; not what CUDA and the allocator take beside it. Tables "
     "show that of the whole first epoch, whose largest batch decides what fits; `stepsim run` begins with the simulated steps."},
    {"measured", {}, "Of a live run: the mean over its steady steps and passes, of the last rank's start to the last rank's end."},
    {"MFU", {"TFLOP/s", "GFLOP/s"},
     "Model FLOPs utilisation: the FLOPs per second of a rank over the peak of its card (dense, 16 bit). Counted are three "
     "times the forward's matrix products, 2 FLOPs a multiplication and addition, and attention by the squared length of "
     "each sample, or half of it where the kernel leaves masked pairs out; or model.flops_per_token, where a scenario states "
     "it, as for a recorded model without a config.json. Padding and recomputation do not count. cluster.peak_tflops states "
     "another peak."},
    {"optimizer", {}, "Milliseconds that a rank updates its parameters, gradient copies and clipping included."},
    {"order change", {"change of order"},
     "How far samples move from the sampler's random order, as a share of the epoch: 0 % is random order, a third is a "
     "full sort. Sorting removes padding and makes consecutive batches alike."},
    {"other", {}, "What of a step, or of its error, is in none of the named parts."},
    {"overlap", {"hidden"},
     "The share of the collectives' time that hides behind compute: under DDP what is over before the last backward "
     "ends, under FSDP what is not exposed."},
    {"p95", {"p50", "p99"},
     "95 of 100 single steps take less. The longest step of a run is the mean over runs; with few steps p99 of all runs "
     "is above it."},
    {"padded tokens", {},
     "Tokens that are computed: each batch counts its samples times the length that they are padded to."},
    {"padding", {"padding ratio", "padded"}, "The share of the computed tokens that are padding: 1 - useful / padded tokens."},
    {"per rank", {}, "Samples per second over the number of ranks."},
    {"policy", {"train with", "setting"},
     "A way to form batches from samples: the name that a scenario gives it, of a kind that `stepsim policies` lists."},
    {"predicted", {}, "The mean step time that Stepsim expects."},
    {"published job", {"source", "GPUs"},
     "Somebody else's training, timed on fewer and on more GPUs, 8 -> 64, with the same batch of a GPU; its "
     "efficiency is what it kept of its samples per second and GPU. The source is a repository or a round of MLPerf."},
    {"rank", {"ranks", "GPU"}, "One process of the training, usually one GPU."},
    {"rank token spread", {"std of padded tokens over ranks"},
     "Useful tokens of the fullest rank less those of the emptiest, mean over the steps. It is what makes ranks wait."},
    {"reference case", {"reference"},
     "A policy on data of its own, marked *: it shows what would be, does other work, and is never recommended."},
    {"regret", {}, "How much faster the measured best policy is than the recommended one: 0 % is the right choice."},
    {"remark", {"verdict"},
     "What to make of a row: best, faster, too close to tell, out of memory by so many GiB, or the part of the step that "
     "makes it slower. Of tune, \"changes less\": slower than the fastest setting by less than 1 %, with fewer changes of "
     "what you have."},
    {"repeatability", {"2 std errors", "the error is"},
     "How much passes of the same live run differ (standard deviation over mean). Errors below two standard errors of "
     "the measured mean cannot be told from none."},
    {"sample skew", {"token skew"},
     "The samples (useful tokens) of the rank that has most in an epoch, over the mean of the ranks: 1.2 is 20 % more "
     "work on that rank, and without a weighting a sample there counts less in the loss."},
    {"samples/s", {"samples a step"}, "Samples that all ranks train together in a second (a step)."},
    {"saves", {"of the step", "the step, if"},
     "How much shorter the mean step would be with that one thing different. Savings overlap and do not add up."},
    {"sentinel", {"machine"},
     "A short computation timed at calibration and again in a live run: 1.1 times is a machine that is 10 % slower now."},
    {"shapes", {"shapes a rank", "distinct shapes"},
     "Different pairs of samples and padded length in an epoch: what a compiler or cuDNN sees as new."},
    {"step", {"steps", "step time", "mean step", "steady step", "epoch's step", "warm-up"},
     "One update of the parameters, all its micro-batches included. Its time, in milliseconds, is from the last rank's "
     "start to the last rank's end, mean over the steady steps: the first ones (warm-up) are left out."},
    {"too close to tell", {"certain", "likely"},
     "The gain is below 1 %, which no two live runs could show, or fewer than nine of ten draws are faster. Keep what you "
     "have, or measure both. A row is \"faster\" where its interval lies above 0, \"likely faster\" where it does not."},
    {"nothing to gain", {"alike", "within"},
     "All choices are within 1 % of the fastest in the mean: no run could show a difference, so keep what you have. Errors of "
     "the profile may still hide one; the intervals in the table say how large it could be. \"Nothing certain to gain, at "
     "most 8.4 %\": the fastest is not faster in nine of ten draws, and 8.4 % is the end of its gain's 90 % interval."},
    {"by the profile's own errors", {},
     "The prices are of single ops, and no recorded step of a training confirms them: likelihoods hold as far as the "
     "profile knows its own errors."},
    {"useful tokens", {"useful tokens/s", "useful tokens per second", "throughput"},
     "Tokens of samples, without padding. Useful tokens per second are what policies are ranked by, since a step of one "
     "policy holds other work than that of another."},
    {"waiting", {"slower ranks", "last bucket", "slowest rank"},
     "Milliseconds in which a rank is idle because a slower rank has not arrived at the collective."},
};
// clang-format on

/// Small letters, without a unit at the end.
std::string plain(std::string word) {
  std::ranges::transform(
      word, word.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const char* unit : {" ms", " mib", " s"}) {
    if (word.ends_with(unit)) {
      word.resize(word.size() - std::string_view(unit).size());
    }
  }
  return word;
}

bool is_letter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0;
}

/// Returns a text as words are compared: in small letters, "warm-up" as "warmup" and "bucket_cap"
/// as "bucket cap".
std::string folded(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c != '-') {
      result += c == '_' ? ' ' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return result;
}

/// Whether a text has a whole word, or its plural, or is about several of what the word names.
bool has_word(const std::string& text, const std::string& word) {
  const std::string all = folded(text);
  for (std::size_t at = all.find(word); at != std::string::npos; at = all.find(word, at + 1)) {
    std::size_t end = at + word.size();
    end += end < all.size() && all[end] == 's' ? 1 : 0;
    if ((at == 0 || !is_letter(all[at - 1])) && (end == all.size() || !is_letter(all[end]))) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::span<const Term> glossary() {
  return kTerms;
}

const Term* find_term(const std::string& word) {
  const std::string wanted = plain(word);
  for (const Term& term : kTerms) {
    if (plain(term.name) == wanted || std::ranges::any_of(term.also, [&](const std::string& other) {
          return plain(other) == wanted;
        })) {
      return &term;
    }
  }
  return nullptr;
}

std::vector<Term> terms_with(const std::string& word) {
  std::string wanted = folded(plain(word));
  if (wanted.ends_with('s')) {
    wanted.pop_back();
  }
  constexpr std::size_t kShortest = 2;
  std::vector<Term> named;
  std::vector<Term> said;
  for (const Term& term : kTerms) {
    if (wanted.size() < kShortest) {
      break;
    }
    if (has_word(term.name, wanted) || std::ranges::any_of(term.also, [&](const auto& other) {
          return has_word(other, wanted);
        })) {
      named.push_back(term);
    } else if (has_word(term.meaning, wanted)) {
      said.push_back(term);
    }
  }
  return named.empty() ? said : named;
}

Json glossary_json() {
  Json words = Json::object();
  for (const Term& term : kTerms) {
    words[plain(term.name)] = term.meaning;
    for (const std::string& other : term.also) {
      words[plain(other)] = term.meaning;
    }
  }
  return words;
}

std::string glossary_markdown() {
  std::string text =
      "# The words of the output\n\n"
      "`stepsim help WORD` says the same in the terminal; on a report page the words stand behind "
      "the headings\nof tables. This page is what `stepsim glossary --markdown -` prints.\n\n"
      "| word | also | meaning |\n|---|---|---|\n";
  for (const Term& term : kTerms) {
    text += fmt::format("| **{}** | {} | {} |\n",
                        markdown_text(term.name),
                        markdown_text(fmt::format("{}", fmt::join(term.also, "; "))),
                        markdown_text(term.meaning));
  }
  return text;
}

}  // namespace stepsim
