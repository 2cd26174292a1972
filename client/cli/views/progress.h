#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace gpumem::cli {

/// Messages on standard error while a command waits: on a terminal one line that is redrawn, elsewhere a line
/// for each change.
class Progress {
 public:
  /// `who`  the prefix of each line: `gpumem run`.
  explicit Progress(std::string who);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `state`  what a change of is worth a line.
  /// `detail`  what only the terminal's line shows besides.
  void show(const std::string& state, const std::string& detail);
  /// Takes the terminal's line away.
  void clear();
  /// Lines of their own.
  void say(const std::string& words);

 private:
  const std::string who_;
  const bool is_terminal_;
  std::string shown_;
};

/// `loading [####      ] 1.5GiB of 3.5GiB`, in `columns` of a terminal at most.
std::string transfer_text(const std::string& what, std::uint64_t done, std::uint64_t total,
                          std::size_t columns);

/// How much of something is done: on a terminal, a line of standard error that is drawn anew and taken away
/// at the end. Elsewhere nothing.
class TransferBar {
 public:
  TransferBar(std::string what, std::uint64_t total);
  ~TransferBar();
  TransferBar(const TransferBar&) = delete;
  TransferBar& operator=(const TransferBar&) = delete;

  /// Draws ten times a second at most.
  void show(std::uint64_t done);

 private:
  const std::string what_;
  const std::uint64_t total_;
  const bool is_terminal_;
  bool is_drawn_ = false;
  std::chrono::steady_clock::time_point next_{};
};

}  // namespace gpumem::cli
