#pragma once
#include <compare>
#include <cstdint>
#include <functional>

namespace gpumem {

/// A number that names one thing of one kind; ids of different kinds do not mix. Zero names nothing.
template <class Tag>
struct Id {
  std::uint64_t value = 0;

  constexpr auto operator<=>(const Id&) const = default;
  constexpr explicit operator bool() const { return value != 0; }
};

/// Gives out ids 1, 2, 3, ...; none comes twice.
template <class IdType>
class IdSource {
 public:
  IdType next() { return IdType{++last_}; }
  IdType last() const { return IdType{last_}; }
  /// None up to `id` comes any more.
  void skip(IdType id) {
    if (last_ < id.value) last_ = id.value;
  }

 private:
  std::uint64_t last_ = 0;
};

using SessionId = Id<struct SessionTag>;
using SliceId = Id<struct SliceTag>;
using ExtentId = Id<struct ExtentTag>;
using LeaseId = Id<struct LeaseTag>;
using GrantId = Id<struct GrantTag>;
using RequestId = Id<struct RequestTag>;

}  // namespace gpumem

template <class Tag>
struct std::hash<gpumem::Id<Tag>> {
  std::size_t operator()(gpumem::Id<Tag> id) const noexcept { return std::hash<std::uint64_t>{}(id.value); }
};
