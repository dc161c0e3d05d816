#include "tests/cuda/emulation/grid.h"

#include <array>
#include <cstddef>
#include <exception>
#include <memory>
#include <stdexcept>
#include <vector>

#include <ucontext.h>

#include "tests/cuda/emulation/device_code.h"

namespace stepsim::cuda::emulated {
namespace {

constexpr unsigned kWarp = 32;
constexpr std::size_t kStackBytes = std::size_t{256} << 10;

enum class State { NotStarted, Ready, AtWarp, AtBlock, Ended };

struct Fiber {
  ucontext_t context{};
  std::unique_ptr<std::byte[]> stack = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
};

struct Thread {
  State state = State::NotStarted;
  Fiber* fiber = nullptr;
  unsigned exchanges = 0;
};

/// What the lanes of a warp leave for each other; two sets, used in turn, so that a fast lane does
/// not overwrite what a slow one has yet to read.
using WarpValues = std::array<std::array<unsigned long long, kWarp>, 2>;

class Block {
 public:
  void run(unsigned threads, const std::function<void()>& kernel);
  void wait(State state);
  unsigned long long exchange(unsigned long long value, unsigned lane);

 private:
  /// Runs threads that have not started until one of them waits: a kernel without barriers needs
  /// one fiber and no changes between fibers.
  void run_fresh_threads();
  void enter(Fiber& fiber);
  void start_threads();
  void resume_ready();
  void release_waiting();
  bool release_warps();
  Fiber& idle_fiber();
  static void prepare(Fiber& fiber);
  static void fiber_main();

  const std::function<void()>* kernel_ = nullptr;
  std::vector<Thread> threads_;
  std::vector<WarpValues> values_;
  unsigned next_ = 0;
  unsigned ended_ = 0;
  unsigned current_ = 0;
  bool backwards_ = false;
  ucontext_t scheduler_{};
  Fiber* running_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;  ///< Kept from block to block.
  std::vector<Fiber*> idle_;
  std::exception_ptr raised_;
};

Block& block() {
  thread_local Block instance;
  return instance;
}

void Block::fiber_main() {
  for (;;) {
    Block& self = block();
    Fiber* fiber = self.running_;
    self.run_fresh_threads();
    self.idle_.push_back(fiber);
    swapcontext(&fiber->context, &self.scheduler_);
  }
}

void Block::run_fresh_threads() {
  while (next_ < threads_.size()) {
    const unsigned thread = next_++;
    current_ = thread;
    threads_[thread].fiber = running_;
    threadIdx.x = thread;
    try {
      (*kernel_)();
    } catch (...) {
      raised_ = std::current_exception();
    }
    threads_[thread].state = State::Ended;
    ++ended_;
  }
}

void Block::prepare(Fiber& fiber) {
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStackBytes;
  makecontext(&fiber.context, fiber_main, 0);
}

Fiber& Block::idle_fiber() {
  if (idle_.empty()) {
    fibers_.push_back(std::make_unique<Fiber>());
    prepare(*fibers_.back());
    return *fibers_.back();
  }
  Fiber& fiber = *idle_.back();
  idle_.pop_back();
  return fiber;
}

void Block::enter(Fiber& fiber) {
  running_ = &fiber;
  swapcontext(&scheduler_, &fiber.context);
}

void Block::start_threads() {
  while (next_ < threads_.size()) {
    enter(idle_fiber());
  }
}

/// One pass over the threads, each until it waits. The order turns round from pass to pass: a
/// kernel that lacks a barrier and works in one order fails in the other.
void Block::resume_ready() {
  backwards_ = !backwards_;
  const auto count = static_cast<unsigned>(threads_.size());
  for (unsigned i = 0; i < count; ++i) {
    const unsigned thread = backwards_ ? count - 1 - i : i;
    if (threads_[thread].state == State::Ready) {
      current_ = thread;
      threadIdx.x = thread;
      enter(*threads_[thread].fiber);
    }
  }
}

bool Block::release_warps() {
  bool released = false;
  for (std::size_t first = 0; first < threads_.size(); first += kWarp) {
    std::size_t waiting = 0;
    for (std::size_t i = first; i < first + kWarp && i < threads_.size(); ++i) {
      waiting += threads_[i].state == State::AtWarp ? 1 : 0;
    }
    if (waiting == 0) {
      continue;
    }
    if (waiting != kWarp) {
      throw std::logic_error("a shuffle that not all lanes of the warp came to");
    }
    for (std::size_t i = first; i < first + kWarp; ++i) {
      threads_[i].state = State::Ready;
    }
    released = true;
  }
  return released;
}

/// Called when no thread can go on.
void Block::release_waiting() {
  if (release_warps()) {
    return;
  }
  for (Thread& thread : threads_) {
    if (thread.state == State::AtBlock) {
      thread.state = State::Ready;
    }
  }
}

void Block::run(unsigned threads, const std::function<void()>& kernel) {
  kernel_ = &kernel;
  threads_.assign(threads, Thread{});
  values_.resize((threads + kWarp - 1) / kWarp);
  next_ = 0;
  ended_ = 0;
  raised_ = nullptr;
  try {
    start_threads();
    while (ended_ < threads) {
      release_waiting();
      resume_ready();
    }
  } catch (...) {
    // Fibers that wait would go on inside this kernel: they are given up.
    idle_.clear();
    fibers_.clear();
    throw;
  }
  if (raised_) {
    std::rethrow_exception(raised_);
  }
}

void Block::wait(State state) {
  Thread& thread = threads_[current_];
  thread.state = state;
  swapcontext(&thread.fiber->context, &scheduler_);
}

unsigned long long Block::exchange(unsigned long long value, unsigned lane) {
  const unsigned thread = current_;
  WarpValues& values = values_[thread / kWarp];
  const unsigned set = threads_[thread].exchanges++ % 2;
  values[set][thread % kWarp] = value;
  wait(State::AtWarp);
  return values[set][lane % kWarp];
}

}  // namespace

void run_grid(unsigned blocks, unsigned threads, const std::function<void()>& kernel) {
  gridDim.x = blocks;
  blockDim.x = threads;
  for (unsigned i = 0; i < blocks; ++i) {
    blockIdx.x = i;
    block().run(threads, kernel);
  }
}

void wait_for_block() {
  block().wait(State::AtBlock);
}

unsigned long long exchange(unsigned long long value, unsigned lane) {
  return block().exchange(value, lane);
}

}  // namespace stepsim::cuda::emulated
