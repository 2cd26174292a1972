#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gpumem/v1/broker.pb.h"

namespace gpumem::rpc {

/// Messages of protocol buffers one after the other are one message, so each entry of a sample is encoded
/// once, by itself, for all viewers.
/// Threads  one.
class SampleTable {
 public:
  /// Bytes of a message, unless one entry has more.
  static constexpr std::size_t kMessageBytes = 65'536;
  /// At least one, which may be empty.
  using Messages = std::vector<std::string>;

  /// Begins the next sample, which has the entries that are put.
  void begin();
  void put(v1::TenantUsage usage);
  void put(v1::JobInfo job);
  void put(v1::SessionInfo session);
  /// Ends the sample. Returns the entries that have changed or come since the sample before, and those that
  /// are gone.
  Messages end();
  /// All entries of the latest sample.
  Messages whole() const;

 private:
  struct Entry {
    std::string bytes;
    std::string since;  ///< an instant that changes with the clock alone, although it is computed each time
    std::uint64_t seen = 0;
  };
  template <class Key>
  using Entries = std::map<Key, Entry>;

  template <class Info>
  void put_dated(Entries<std::uint64_t>& entries, Info info, Info* (v1::Sample::*add)());
  void keep(Entry& entry);
  template <class Key, class Gone>
  void drop_unseen(Entries<Key>& entries, Gone gone);
  static void append(Messages& messages, const std::string& bytes);

  std::uint64_t number_ = 0;
  Messages changes_;
  v1::Sample one_;                                        ///< with the entry that is being put
  Entries<std::pair<std::string, std::string>> tenants_;  ///< by name and device
  Entries<std::uint64_t> jobs_;
  Entries<std::uint64_t> sessions_;
};

}  // namespace gpumem::rpc
