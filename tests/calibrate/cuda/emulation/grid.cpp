#include "tests/calibrate/cuda/emulation/grid.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <exception>
#include <memory>
#include <stdexcept>
#include <vector>

#include <ucontext.h>

#include "tests/calibrate/cuda/emulation/device_code.h"

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
  void resume_ready_of(unsigned warp);
  bool release_warp(unsigned warp);
  void run_to_barrier();
  void release_block();
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

void Block::resume_ready_of(unsigned warp) {
  const unsigned end = std::min((warp + 1) * kWarp, static_cast<unsigned>(threads_.size()));
  for (unsigned thread = warp * kWarp; thread < end; ++thread) {
    if (threads_[thread].state == State::Ready) {
      current_ = thread;
      threadIdx.x = thread;
      enter(*threads_[thread].fiber);
    }
  }
}

/// Lets the lanes of a warp go on after a shuffle; false when none is at one.
bool Block::release_warp(unsigned warp) {
  const unsigned end = std::min((warp + 1) * kWarp, static_cast<unsigned>(threads_.size()));
  unsigned waiting = 0;
  for (unsigned thread = warp * kWarp; thread < end; ++thread) {
    waiting += threads_[thread].state == State::AtWarp ? 1 : 0;
  }
  if (waiting == 0) {
    return false;
  }
  if (waiting != kWarp) {
    throw std::logic_error("a shuffle that not all lanes of the warp came to");
  }
  for (unsigned thread = warp * kWarp; thread < end; ++thread) {
    threads_[thread].state = State::Ready;
  }
  return true;
}

/// One pass over the warps, each until it ends or waits for the block: a warp is as far ahead of
/// the others as barriers let it be, the first and the last in turn, so that a kernel that lacks a
/// barrier fails.
void Block::run_to_barrier() {
  backwards_ = !backwards_;
  const auto warps = static_cast<unsigned>(values_.size());
  for (unsigned i = 0; i < warps; ++i) {
    const unsigned warp = backwards_ ? warps - 1 - i : i;
    do {
      resume_ready_of(warp);
    } while (release_warp(warp));
  }
}

/// Called when all threads that have not ended wait for the block.
void Block::release_block() {
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
      run_to_barrier();
      release_block();
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
  // Forwards and backwards in turn: blocks that overwrite each other's results differ in one.
  thread_local bool backwards = false;
  backwards = !backwards;
  for (unsigned i = 0; i < blocks; ++i) {
    blockIdx.x = backwards ? blocks - 1 - i : i;
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
