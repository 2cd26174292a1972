#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "daemon/core/words/types.h"

namespace gpumem::core::promises {

/// What is out, by the world's own reckoning: granted and not yet offered, or lent and not yet proved free.
class Books {
 public:
  explicit Books(std::size_t devices) : devices_(devices), lost_(devices) {}

  void granted(RequestId request, SessionId session, DeviceIndex device, Bytes bytes);
  /// The request was offered its extents, refused, or withdrawn: what was granted is no charge any more.
  void settled(RequestId request);
  void ended(SessionId session);
  void lent(ExtentId extent, SessionId session, DeviceIndex device, Bytes size);
  void given_back(ExtentId extent) { lent_.at(extent).returned = true; }
  /// One more process has it.
  void mapped(ExtentId extent) { ++lent_.at(extent).users; }
  void unmapped(ExtentId extent);
  /// Another session is charged for it.
  void passed(ExtentId extent, SessionId to, bool returned);
  /// From now on it is known which it is when it is freed: freed(ExtentId), and not by its size.
  void published(ExtentId extent) { lent_.at(extent).published = true; }
  struct Freed {
    SessionId session;
    DeviceIndex device = 0;
    Bytes size;
    bool was_given_back = false;
  };
  Freed freed(ExtentId extent);
  SessionId holder(ExtentId extent) const { return lent_.at(extent).session; }
  DeviceIndex device(ExtentId extent) const { return lent_.at(extent).device; }
  Bytes size(ExtentId extent) const { return lent_.at(extent).size; }
  /// The broker says that so much of what the session has given back is free. What is physically still mapped
  /// is lost to it from then on. Answers false if the session has not given back as much.
  bool freed(SessionId session, DeviceIndex device, Bytes bytes);

  /// By device.
  std::vector<Bytes> charges_of(SessionId session) const;
  /// Of `session`, in the hands of its process although it was given back or its lane is closed.
  Bytes kept(SessionId session, DeviceIndex device) const;
  /// Mapped by somebody although the broker took it for free.
  Bytes lost(DeviceIndex device) const { return lost_[device]; }
  void close_lane(SessionId session);

 private:
  struct Lent {
    SessionId session;
    DeviceIndex device = 0;
    Bytes size;
    int users = 1;  ///< processes that have it mapped
    bool returned = false;
    bool lost = false;
    bool published = false;
  };
  struct Pending {
    SessionId session;
    DeviceIndex device = 0;
    Bytes bytes;
  };
  /// Extents that make up `bytes`, as far as there are such.
  std::vector<ExtentId> given_back(SessionId session, DeviceIndex device, Bytes& bytes,
                                   bool mapped_too) const;
  void forget(ExtentId extent);
  void add(SessionId session, DeviceIndex device, Bytes bytes);
  void take(SessionId session, DeviceIndex device, Bytes bytes);

  std::size_t devices_;
  std::map<ExtentId, Lent> lent_;
  std::map<SessionId, std::set<ExtentId>> by_session_;
  std::multimap<RequestId, Pending> pending_;
  std::map<SessionId, std::vector<Bytes>> charges_;
  std::vector<Bytes> lost_;
};

}  // namespace gpumem::core::promises
