#pragma once
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "daemon/host/state/journal.h"
#include "tests/support/temporary_folder.h"

namespace gpumem::host {

inline const std::vector<std::string> kDevices{"GPU-a", "GPU-b"};

/// Lets no file of this process grow beyond `bytes`, as long as it lives.
class FullDisk {
 public:
  explicit FullDisk(std::uintmax_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit full{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &full);
  }
  ~FullDisk() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
};

struct JournalKept : testing::Test {
  Result<Journal> begin(const core::Checkpoint& checkpoint = {}) {
    return Journal::begin(folder_.path(), kDevices, checkpoint);
  }
  Journal::Content read() const {
    auto content = Journal::read(folder_.path());
    EXPECT_TRUE(content) << content.error().message;
    EXPECT_TRUE(*content);
    return content && *content ? **content : Journal::Content{};
  }
  /// Where each of them ends in the file, behind the end of what it began with.
  std::vector<std::size_t> write_one_by_one(std::span<const core::Checkpoint::Change> changes) {
    auto journal = begin();
    EXPECT_TRUE(journal);
    std::vector<std::size_t> ends{test::read_file(file()).size()};
    for (const auto& change : changes) {
      EXPECT_TRUE(journal->add({&change, 1}));
      ends.push_back(test::read_file(file()).size());
    }
    return ends;
  }
  std::filesystem::path file() const { return folder_ / "journal"; }
  std::uintmax_t size() const { return std::filesystem::file_size(file()); }

  test::TemporaryFolder folder_;
};

}  // namespace gpumem::host
