#pragma once
#include <string>

namespace gpumem::cli {

/// Messages on standard error while a command waits: on a terminal one line that is redrawn, elsewhere a line
/// for each change.
class Progress {
 public:
  /// `who`  prefix of each line: `gpumem run`.
  explicit Progress(std::string who);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `state`  what a change of is worth a line.
  /// `detail`  what only the terminal's line shows besides.
  void show(const std::string& state, const std::string& detail);
  /// Takes the terminal's line away.
  void clear();
  /// A line of its own.
  void say(const std::string& words);

 private:
  const std::string who_;
  const bool is_terminal_;
  std::string shown_;
};

}  // namespace gpumem::cli
