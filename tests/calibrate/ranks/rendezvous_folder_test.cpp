#include "calibrate/ranks/rendezvous_folder.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace stepsim {
namespace {

namespace fs = std::filesystem;

/// A folder for temporary files of its own, while this lives.
class OwnTemporaries {
 public:
  OwnTemporaries() {
    const char* const before = std::getenv("TMPDIR");
    before_ = before == nullptr ? "" : before;
    path_ = (fs::temp_directory_path() / "stepsim-test-XXXXXX").string();
    REQUIRE(::mkdtemp(path_.data()) != nullptr);
    ::setenv("TMPDIR", path_.c_str(), 1);
  }
  ~OwnTemporaries() {
    if (before_.empty()) {
      ::unsetenv("TMPDIR");
    } else {
      ::setenv("TMPDIR", before_.c_str(), 1);
    }
    fs::remove_all(path_);
  }
  [[nodiscard]] long entries() const {
    return std::distance(fs::directory_iterator(path_), fs::directory_iterator());
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string before_;
  std::string path_;
};

}  // namespace

TEST_CASE(
    "the ranks' folder is private and goes with them; those left by a kill go with the next") {
  const OwnTemporaries temporaries;
  std::string killed;
  {
    const ranks::RendezvousFolder folder;
    CHECK((fs::status(folder.path()).permissions() & fs::perms::all) == fs::perms::owner_all);
    std::ofstream(folder.path() + "/file") << "text";
    const pid_t other = ::fork();
    if (other == 0) {
      const ranks::RendezvousFolder left_behind;
      std::ofstream(left_behind.path() + "/file") << "text";
      ::kill(::getpid(), SIGKILL);
    }
    ::waitpid(other, nullptr, 0);
    fs::create_directory(temporaries.path() + "/of-somebody-else");
    fs::create_directory_symlink(temporaries.path() + "/of-somebody-else",
                                 temporaries.path() + "/stepsim-ranks-link");
    CHECK(temporaries.entries() == 4);
    const ranks::RendezvousFolder next;
    CHECK(temporaries.entries() == 4);  // The killed one's is gone, the first one's is in use.
    CHECK(fs::exists(folder.path() + "/file"));
  }
  CHECK(temporaries.entries() == 2);
}

TEST_CASE("the ranks' folder stays while a process that was forked from its maker lives") {
  const OwnTemporaries temporaries;
  const pid_t maker = ::fork();
  if (maker == 0) {
    ::setpgid(0, 0);
    const ranks::RendezvousFolder folder;
    if (::fork() == 0) {
      ::sleep(60);
      ::_exit(0);
    }
    ::raise(SIGSTOP);
  }
  int status = 0;
  ::waitpid(maker, &status, WUNTRACED);
  ::kill(maker, SIGKILL);
  ::waitpid(maker, nullptr, 0);
  {
    const ranks::RendezvousFolder mine;
    CHECK(temporaries.entries() == 2);
  }
  ::kill(-maker, SIGKILL);  // Its child.
  for (int tries = 0; tries < 1000 && ::kill(-maker, 0) == 0; ++tries) {
    ::usleep(10'000);
  }
  const ranks::RendezvousFolder mine;
  CHECK(temporaries.entries() == 1);
}

}  // namespace stepsim
