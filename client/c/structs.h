#pragma once
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <forward_list>
#include <stop_token>
#include <string>
#include <utility>

#include "gpumem.h"
#include "gpumem/options.h"
#include "gpumem/result.h"

// Versioned structs of gpumem.h, and the options that the library reads from them. The caller's may be older
// or newer than the library's.

namespace gpumem::c_abi {

inline constexpr std::size_t kLargestStruct = 4096;  ///< beyond that, struct_size was never set

inline Error wrong_size(const char* name, std::size_t size) {
  return {Code::kInvalidArgument, std::string(name) + ": its struct_size is " + std::to_string(size) +
                                      "; initialise it with its _INIT macro"};
}

/// Converts `given` to the library's version of the struct. Null and missing members get the defaults.
/// Errors  kInvalidArgument: struct_size was not set; a member that this library does not know is not zero.
template <class Struct>
Result<Struct> read_struct(const Struct* given, const char* name) {
  Struct known{};
  known.struct_size = sizeof(Struct);
  if (given == nullptr) return known;
  const std::size_t size = given->struct_size;
  if (size < sizeof(size) || size > kLargestStruct) return wrong_size(name, size);
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  if (size > sizeof(Struct) &&
      !std::all_of(bytes + sizeof(Struct), bytes + size, [](unsigned char byte) { return byte == 0; })) {
    return Error{Code::kInvalidArgument, std::string(name) +
                                             ": it says something that this library, " GPUMEM_VERSION
                                             ", does not know"};
  }
  std::memcpy(&known, bytes, std::min(size, sizeof(Struct)));
  known.struct_size = sizeof(Struct);
  return known;
}

/// Stores the members of `known` that the caller's `out` has. Members that the library does not know become
/// zero.
/// Errors  kInvalidArgument: no struct, or its struct_size was not set.
template <class Struct>
Result<void> write_struct(Struct known, Struct* out, const char* name) {
  if (out == nullptr) return Error{Code::kInvalidArgument, std::string(name) + " is NULL"};
  const std::size_t size = out->struct_size;
  if (size < sizeof(size) || size > kLargestStruct) return wrong_size(name, size);
  known.struct_size = size;
  auto* bytes = reinterpret_cast<unsigned char*>(out);
  std::memcpy(bytes, &known, std::min(size, sizeof(Struct)));
  if (size > sizeof(Struct)) std::memset(bytes + sizeof(Struct), 0, size - sizeof(Struct));
  return {};
}

/// Errors  kInvalidArgument: `pointer` is null; `what` names it in the message.
template <class T>
Result<void> not_null(const T* pointer, const char* what) {
  if (pointer != nullptr) return {};
  return Error{Code::kInvalidArgument, std::string(what) + " is NULL"};
}

/// The C string as a std::string; empty for null.
inline std::string text(const char* given) { return given != nullptr ? given : ""; }

/// Errors  kInvalidArgument: negative.
Result<std::chrono::milliseconds> read_duration(std::int64_t milliseconds, const char* what);

Result<SessionOptions> read_options(const gpumem_session_options* given);
Result<JobOptions> read_options(const gpumem_job_options* given);
Result<AllocatorOptions> read_options(const gpumem_allocator_options* given);

/// Joins several reasons to call one growth off: its caller's canceller, the closing of its slices.
class Stopping {
 public:
  void add(std::stop_token reason) { reasons_.emplace_front(std::move(reason), Stop{&source_}); }
  std::stop_token token() const { return source_.get_token(); }

 private:
  struct Stop {
    std::stop_source* source;
    void operator()() const noexcept { source->request_stop(); }
  };
  std::stop_source source_;
  std::forward_list<std::stop_callback<Stop>> reasons_;  ///< end before the source
};

/// The options, with `stopping`'s token, to which the canceller is added.
Result<GrowOptions> read_options(const gpumem_grow_options* given, Stopping& stopping);

}  // namespace gpumem::c_abi
