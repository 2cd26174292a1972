#pragma once
#include <cstdint>
#include <string>

#include "gpumem/bytes.h"
#include "gpumem/detail/c.h"
#include "gpumem/options.h"
#include "gpumem/result.h"

namespace gpumem {

/// An IPC handle: 64 bytes that name memory of a slice or an allocator. They are sent to another process by
/// any means; nobody guesses them, and only sessions of the same tenant can redeem them. Made by
/// Slice::export_handle and Allocator::export_handle, redeemed by Session::import_handle.
using IpcHandle = gpumem_ipc_handle;

namespace detail {

/// The handle that `call(options, handle)` stores.
template <class Call>
Result<IpcHandle> exported(const ExportOptions& options, Call&& call) {
  gpumem_export_options given = GPUMEM_EXPORT_OPTIONS_INIT;
  given.life_ms = options.life.count();
  given.uses = options.uses;
  IpcHandle handle{};
  const gpumem_status status = call(&given, &handle);
  if (status != GPUMEM_OK) return last_error(status);
  return handle;
}

}  // namespace detail

/// Memory of another session's slice, mapped into this process, readable and writable. It stays mapped when
/// that slice gives it back or its process ends; it is then charged to this session. When the broker asks for
/// the memory, it asks this session, too: a pressure handler ends the import.
/// Threads  any.
/// Fork     as Slice.
/// The destructor unmaps the memory. The caller must have synchronised its work on it.
class Import {
 public:
  Import(Import&&) noexcept = default;
  Import& operator=(Import&&) noexcept = default;
  ~Import() = default;

  /// The first address of the range; a CUdeviceptr in value; in the host store, a pointer of this process.
  std::uint64_t address() const { return gpumem_import_address(handle_.get()); }
  Bytes size() const { return {gpumem_import_bytes(handle_.get())}; }
  /// UUID and this process's ordinal of the device; `host` and -1: the host store.
  const std::string& device() const { return device_; }
  int ordinal() const { return gpumem_import_ordinal(handle_.get()); }

  /// This import's handle for the C interface. This object owns it: it must not be closed or freed. Null:
  /// moved from.
  gpumem_import* c_handle() const { return handle_.get(); }

 protected:
  explicit Import(gpumem_import* handle)
      : handle_(handle), device_(detail::cpp_text(gpumem_import_device(handle))) {}

 private:
  friend class Session;
  detail::Handle<gpumem_import> handle_;
  std::string device_;
};

}  // namespace gpumem
