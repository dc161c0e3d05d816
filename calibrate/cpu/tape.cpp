#include "calibrate/cpu/tape.h"

#include <algorithm>
#include <stdexcept>

#include "costmodel/input_error.h"

namespace stepsim::cpu {
namespace {

/// "layer3.qkv" -> "qkv".
std::string part_of(const std::string& name) {
  const auto dot = name.find('.');
  return dot == std::string::npos ? name : name.substr(dot + 1);
}

}  // namespace

Tape::Tape(const TapeContext& context, const StepOps& ops) : context_(context) {
  const ModelFamily family = context.config.family;
  if (family == ModelFamily::Blocks) {
    throw InputError("model kind blocks has no kernels; it is for simulation only");
  }
  pre_norm_ = family != ModelFamily::Bert && family != ModelFamily::DistilBert;
  for (const Op& op : ops.backward) {
    auto& list = completed_by_[op.name];
    list.insert(list.end(), op.completes.begin(), op.completes.end());
    std::sort(list.begin(), list.end());
  }
  for (const Op& op : ops.forward) {
    add(op);
  }
  for (const Op& op : ops.backward) {
    const auto found = backward_of_.find({op.name, op.pass});
    if (found == backward_of_.end()) {
      throw std::logic_error("the CPU trainer has no backward for op " + op.name);
    }
    backward_.push_back(found->second);
  }
  if (forward_.size() != ops.forward.size() || backward_of_.size() != ops.backward.size()) {
    throw std::logic_error("the CPU trainer's tape differs from the model's list of ops");
  }
}

void Tape::on_backward(const Op& op, Pass pass, Run run) {
  backward_of_[{op.name, pass}] = std::move(run);
}

const std::vector<int>& Tape::parameters_of(const Op& op) const {
  static const std::vector<int> kNone;
  const auto found = completed_by_.find(op.name);
  return found == completed_by_.end() ? kNone : found->second;
}

void Tape::initialise(std::size_t parameter, float bound, float center) {
  RandomStream random(context_.seed + 0x51ED2701ULL * (parameter + 1));
  float* weights = context_.store.weights(parameter);
  for (std::int64_t i = 0; i < context_.store.elements(parameter); ++i) {
    weights[i] = center + (bound > 0 ? random.uniform(bound) : 0.0F);
  }
}

void Tape::add(const Op& op) {
  const std::string part = part_of(op.name);
  if (!add_embedding_part(op, part) && !add_attention_part(op, part) && !add_mlp_part(op, part) &&
      !add_head_part(op, part)) {
    throw std::logic_error("the CPU trainer does not know op " + op.name);
  }
}

bool Tape::add_embedding_part(const Op& op, const std::string& part) {
  if (part == "embedding") {
    embedding_table_ = parameters_of(op).at(0);
    stream_ = &lookup(op, &Batch::ids);
    embedded_.push_back(stream_);
  } else if (part == "position_embedding") {
    embedded_.push_back(&lookup(op, &Batch::positions));
  } else if (part == "token_type_embedding") {
    embedded_.push_back(&lookup(op, &Batch::types));
  } else if (part == "embedding_add") {
    stream_ = &sum(op, embedded_);
  } else if (part == "embedding_norm") {
    stream_ = &norm(op, *stream_);
  } else {
    return false;
  }
  branch_ = stream_;
  return true;
}

bool Tape::add_attention_part(const Op& op, const std::string& part) {
  const TransformerConfig& config = context_.config;
  if (part == "attention_norm" || part == "mlp_norm" || part == "final_norm") {
    branch_ = &norm(op, *stream_);
    stream_ = pre_norm_ && part != "final_norm" ? stream_ : branch_;
  } else if (part == "qkv") {
    Value* all = &linear(op, *branch_, Extent::Tokens);
    q_ = {all, 0};
    k_ = {all, config.heads * config.head_dim()};
    v_ = {all, (config.heads + config.kv_heads) * config.head_dim()};
  } else if (part == "q") {
    q_ = {&linear(op, *branch_, Extent::Tokens), 0};
  } else if (part == "k") {
    k_ = {&linear(op, *branch_, Extent::Tokens), 0};
  } else if (part == "v") {
    v_ = {&linear(op, *branch_, Extent::Tokens), 0};
  } else if (part == "rotary") {
    rotary(op);
  } else if (part == "scores") {
    scores(op);
  } else if (part == "softmax") {
    softmax(op);
  } else if (part == "context") {
    branch_ = &context(op);
  } else if (part == "attention_output") {
    branch_ = &linear(op, *branch_, Extent::Tokens);
  } else if (part == "attention_residual" || part == "mlp_residual") {
    stream_ = &sum(op, {branch_, stream_});
    branch_ = stream_;
  } else {
    return false;
  }
  return true;
}

bool Tape::add_mlp_part(const Op& op, const std::string& part) {
  if (part == "mlp_gate") {
    gate_ = &linear(op, *branch_, Extent::Tokens);
  } else if (part == "mlp_up") {
    up_ = &linear(op, *branch_, Extent::Tokens);
  } else if (part == "activation") {
    branch_ = gate_ != nullptr ? &swiglu(op, *gate_, *up_) : &activation(op, *up_);
    gate_ = nullptr;
  } else if (part == "mlp_down") {
    branch_ = &linear(op, *branch_, Extent::Tokens);
  } else {
    return false;
  }
  return true;
}

bool Tape::add_head_part(const Op& op, const std::string& part) {
  if (part == "lm_head") {
    branch_ = &linear(op, *branch_, Extent::Tokens);
  } else if (part == "pooling") {
    branch_ = &pool(op, *branch_);
  } else if (part == "pooler" || part == "pre_classifier" || part == "classifier") {
    branch_ = &linear(op, *branch_, Extent::Samples);
  } else if (part == "head_activation") {
    branch_ = &activation(op, *branch_);
  } else if (part == "loss") {
    loss(op, *branch_);
  } else {
    return false;
  }
  return true;
}

}  // namespace stepsim::cpu
