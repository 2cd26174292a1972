#pragma once
#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>

#include "sim/driver/streams.h"

namespace gpumem::sim {

/// Something of the program's that graphs keep alive. Its destruction calls the program's function, later and
/// in a thread that all of them share, where no lock of the driver is held.
class UserObject {
 public:
  UserObject(CUhostFn destroy, void* data) : destroy_(destroy), data_(data) {}
  ~UserObject();
  UserObject(const UserObject&) = delete;
  UserObject& operator=(const UserObject&) = delete;

 private:
  CUhostFn destroy_;
  void* data_;
};

/// References to an object, as a program counts them; none are no reference at all.
struct UserReferences {
  std::shared_ptr<UserObject> object;
  std::uint64_t count = 0;
};
/// The references of one owner, by the objects' handles.
using UserReferenceMap = std::map<std::uint64_t, UserReferences>;

/// The user objects of one process. Threads: the caller holds the driver's lock.
class UserObjects {
 public:
  /// The program owns `count` references, at least one.
  std::uint64_t create(CUhostFn destroy, void* data, std::uint64_t count);
  /// nullptr if there is none with this handle that anybody refers to.
  std::shared_ptr<UserObject> find(std::uint64_t number) const;
  /// The program's own references.
  UserReferenceMap& owned() { return owned_; }

  /// Adds references to `owner`, and takes them away: false if it has fewer.
  static void retain(UserReferenceMap& owner, std::uint64_t number, const UserReferences& more);
  static bool release(UserReferenceMap& owner, std::uint64_t number, std::uint64_t count);

  /// The stream where objects are destroyed. Work in it may keep references until something is past.
  static const StreamRef& destruction();

 private:
  UserReferenceMap owned_;
  std::map<std::uint64_t, std::weak_ptr<UserObject>> all_;
  std::uint64_t last_ = 0x90'0000'0000;  // looks like no host pointer and no small number
};

}  // namespace gpumem::sim
