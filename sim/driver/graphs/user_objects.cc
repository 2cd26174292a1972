#include "sim/driver/graphs/user_objects.h"

#include "sim/driver/driver.h"

namespace gpumem::sim {

UserObject::~UserObject() {
  Driver::get().streams.submit(UserObjects::destruction(),
                               [destroy = destroy_, data = data_] { destroy(data); });
}

const StreamRef& UserObjects::destruction() {
  static const auto* const stream =
      new StreamRef(Driver::get().streams.create({.kind = StreamKind::kNonBlocking}));
  return *stream;
}

std::uint64_t UserObjects::create(CUhostFn destroy, void* data, std::uint64_t count) {
  const std::uint64_t number = last_ += 16;
  UserReferences& own = owned_[number];
  own = {std::make_shared<UserObject>(destroy, data), count};
  std::erase_if(all_, [](const auto& entry) { return entry.second.expired(); });
  all_[number] = own.object;
  return number;
}

std::shared_ptr<UserObject> UserObjects::find(std::uint64_t number) const {
  const auto found = all_.find(number);
  return found == all_.end() ? nullptr : found->second.lock();
}

void UserObjects::retain(UserReferenceMap& owner, std::uint64_t number, const UserReferences& more) {
  UserReferences& references = owner[number];
  references = {more.object, references.count + more.count};
}

bool UserObjects::release(UserReferenceMap& owner, std::uint64_t number, std::uint64_t count) {
  const auto found = owner.find(number);
  if (found == owner.end() || found->second.count < count) return false;
  found->second.count -= count;
  if (found->second.count == 0) owner.erase(found);
  return true;
}

}  // namespace gpumem::sim
