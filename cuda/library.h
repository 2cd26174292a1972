#pragma once
#include <filesystem>
#include <string>

#include "gpumem/result.h"

namespace gpumem::cuda {

/// A shared library opened at run time. Never closed: drivers do not survive it.
class Library {
 public:
  /// Opens `name` in `folder`, or by the system's search path if `folder` is empty.
  /// Errors  kNotFound: no such library, or it cannot be loaded; the message has the loader's words.
  static Result<Library> open(const std::filesystem::path& folder, const std::string& name);
  /// From now on, open() without a folder passes the drop-in driver by where the loader finds that first. For
  /// gpumem's own programs; libgpumem uses the driver that its program has.
  static void pass_by_drop_in();

  /// The address of `symbol`, or null.
  void* find(const char* symbol) const;

  /// Sets `function` to the address of `symbol`.
  /// Errors  kFailedPrecondition: the library does not have it (a driver that is too old).
  template <class Function>
  Result<void> bind(Function& function, const char* symbol) const {
    void* address = find(symbol);
    if (address == nullptr) return missing(symbol);
    function = reinterpret_cast<Function>(address);
    return {};
  }

 private:
  Library(void* handle, std::string name) : handle_(handle), name_(std::move(name)) {}
  Error missing(const char* symbol) const;

  void* handle_;
  std::string name_;
};

}  // namespace gpumem::cuda
