#include "sim/cli/command_output.h"

#include <array>
#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"

namespace stepsim {

CommandOutput command_output(const std::vector<std::string>& words) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw EnvironmentFault("cannot make a pipe: {}", std::generic_category().message(errno));
  }
  posix_spawn_file_actions_t actions{};
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  std::vector<std::string> copies = words;  // posix_spawnp() takes texts that it may write to.
  std::vector<char*> arguments = mapped(copies, [](std::string& word) { return word.data(); });
  arguments.push_back(nullptr);
  pid_t child = -1;
  const int error =
      ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  CommandOutput output;
  if (error == 0) {
    std::array<char, 4096> part{};
    ssize_t size = 0;
    while ((size = ::read(ends[0], part.data(), part.size())) > 0 || (size < 0 && errno == EINTR)) {
      output.text.append(part.data(), static_cast<std::size_t>(size > 0 ? size : 0));
    }
  }
  ::close(ends[0]);
  if (error != 0) {
    throw EnvironmentFault(
        "cannot run {}: {}", printable(words[0]), std::generic_category().message(error));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  output.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return output;
}

}  // namespace stepsim
