#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/system/unique_fd.h"
#include "gpumem/result.h"

namespace gpumem::sim {

/// The state of an event that several processes see: how often it was recorded and how many of these records
/// are done, in a small file of the machine that all of them map. The name goes with the process that made
/// it; whoever has it open keeps it.
/// Threads: any, in any number of processes.
class SharedEvent {
 public:
  static Result<std::shared_ptr<SharedEvent>> create(const std::string& folder);
  /// Errors  kNotFound: there is no such event (any more).
  static Result<std::shared_ptr<SharedEvent>> open(const std::string& folder, const std::string& name);
  ~SharedEvent();
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  const std::string& name() const { return name_; }

  /// Announces a record; its turn is to be finished when the work before it is done.
  std::uint64_t begin();
  void finish(std::uint64_t turn);

  std::uint64_t latest() const;
  bool is_done() const;
  /// Blocks until `turn` is done, or until the process whose turn it is has ended.
  void wait(std::uint64_t turn) const;

 private:
  struct Page;
  SharedEvent(std::string path, std::string name, Page* page, bool is_owner);
  static Result<std::shared_ptr<SharedEvent>> map(const std::string& folder, std::string name, UniqueFd fd,
                                                  bool is_owner);
  bool is_over(std::uint64_t turn) const;

  const std::string path_, name_;
  Page* const page_;
  const bool is_owner_;
};

}  // namespace gpumem::sim
