#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "base/thread_guards.h"
#include "client/allocator/engine.h"
#include "client/c/last_error.h"
#include "client/c/structs.h"
#include "client/process/fork_guard.h"
#include "client/session/import_state.h"
#include "client/slice/session_state.h"
#include "client/slice/slice_state.h"
#include "gpumem.h"
#include "gpumem/options.h"
#include "gpumem/result.h"

// The objects of the kinds of handles. What they report after closing is copied beforehand.

namespace gpumem::c_abi {

using Session = client::SessionState;
using Slice = client::SliceState;
using Import = client::ImportState;

/// Owner of the handle: the program, which closes it, or the process.
enum class Owner { kProgram, kProcess };

/// The object that a handle points at. It lasts until it is freed, so that using a closed handle is an error
/// and not a use after free. All objects are on a list, so that leak checkers find them.
class Lasting {
 public:
  Lasting() {
    const client::NoFork consistent;  // a forked child finds the list whole
    next_ = first_;
    if (next_ != nullptr) next_->previous_ = this;
    first_ = this;
  }
  Lasting(const Lasting&) = delete;
  Lasting& operator=(const Lasting&) = delete;

  /// False in a forked child of the process that made it.
  bool is_of_this_process() const { return generation_ == client::process_generation(); }

 protected:
  ~Lasting() {
    const client::NoFork consistent;
    if (next_ != nullptr) next_->previous_ = previous_;
    (previous_ != nullptr ? previous_->next_ : first_) = next_;
  }

 private:
  static inline Lasting* first_ = nullptr;  ///< guarded by NoFork, as the links are
  Lasting* next_ = nullptr;
  Lasting* previous_ = nullptr;
  const std::uint64_t generation_ = client::process_generation();
};

/// Holds the object of a handle until the handle is closed.
/// Threads  any. A call keeps the object that it uses alive; after closing, it ends with the last such call.
template <class T>
class Kept {
 public:
  /// `what`  names the kind of handle in messages: `session`.
  Kept(const char* what, std::shared_ptr<T> value) : what_(what), value_(std::move(value)) {}
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

  /// Errors  kFailedPrecondition: closed, or in a forked child, where the mutex may stay locked.
  Result<std::shared_ptr<T>> use() {
    if (auto here = client::check_not_forked(generation_); !here) return here.error();
    const MutexLock lock(mutex_);
    if (!value_) return closed();
    return value_;
  }

  /// Takes the object out of the handle. Errors  as use.
  Result<std::shared_ptr<T>> take() {
    if (auto here = client::check_not_forked(generation_); !here) return here.error();
    const MutexLock lock(mutex_);
    if (!value_) return closed();
    return std::exchange(value_, nullptr);
  }

 private:
  Error closed() const {
    return {Code::kFailedPrecondition, std::string("the ") + what_ + " has been closed"};
  }

  const char* const what_;
  const std::uint64_t generation_ = client::process_generation();
  Mutex mutex_;
  std::shared_ptr<T> value_ GPUMEM_GUARDED_BY(mutex_);
};

/// What an allocator is opened as.
struct Opening {
  Owner owner = Owner::kProgram;
  gpumem_allocator* older = nullptr;  ///< the process's own that the new one takes the place of
  std::optional<client::Lane::Clock::time_point> deadline{};  ///< none: the session's timeout
};
/// Opens the object and its handle, as gpumem_allocator_open.
Result<gpumem_allocator*> open_allocator(gpumem_session& session, const AllocatorOptions& options,
                                         const Opening& opening = {});

}  // namespace gpumem::c_abi

struct gpumem_session final : gpumem::c_abi::Lasting {
  gpumem_session(std::shared_ptr<gpumem::c_abi::Session> opened, gpumem::c_abi::Owner whose)
      : id(opened->id()),
        job(opened->job()),
        tenant(opened->tenant()),
        driver_folder(opened->driver_folder()),
        owner(whose),
        session("session", std::move(opened)) {}

  const std::uint64_t id;
  const std::uint64_t job;
  const std::string tenant;
  const std::string driver_folder;
  const gpumem::c_abi::Owner owner;
  gpumem::c_abi::Kept<gpumem::c_abi::Session> session;
};

struct gpumem_slice final : gpumem::c_abi::Lasting {
  explicit gpumem_slice(std::shared_ptr<gpumem::c_abi::Slice> opened)
      : base(opened->base()),
        limit(opened->limit()),
        granularity(opened->granularity()),
        device(opened->device().uuid),
        ordinal(opened->device().ordinal()),
        slice("slice", std::move(opened)) {}

  const std::uint64_t base;
  const gpumem::Bytes limit;
  const gpumem::Bytes granularity;
  const std::string device;
  const int ordinal;
  std::stop_source closing;  ///< cancels growths that wait
  gpumem::c_abi::Kept<gpumem::c_abi::Slice> slice;
};

struct gpumem_import final : gpumem::c_abi::Lasting {
  explicit gpumem_import(std::shared_ptr<gpumem::c_abi::Import> opened)
      : address(opened->address()),
        bytes(opened->bytes()),
        device(opened->device().uuid),
        ordinal(opened->device().ordinal()),
        version(opened->region().version),
        layout(opened->region().layout),
        digest(opened->region().digest),
        import("import", std::move(opened)) {}

  const std::uint64_t address;
  const gpumem::Bytes bytes;
  const std::string device;
  const int ordinal;
  std::atomic<std::uint64_t>
      version;  ///< of a region, which is another when the newest is mapped in its place
  const gpumem::Bytes layout;
  const gpumem::lane::LayoutDigest digest;
  gpumem::c_abi::Kept<gpumem::c_abi::Import> import;
};

/// The engine is kept after closing. It reports that it is closed, so the hot calls can go to it directly.
struct gpumem_allocator final : gpumem::c_abi::Lasting {
  gpumem_allocator(std::shared_ptr<gpumem::allocator::Engine> opened, gpumem::c_abi::Owner whose,
                   gpumem_session* of, gpumem_allocator* before)
      : limit(opened->properties().limit),
        granularity(opened->properties().granularity),
        device(opened->properties().device),
        ordinal(opened->properties().ordinal),
        owner(whose),
        session(whose == gpumem::c_abi::Owner::kProcess ? of : nullptr),
        older(before),
        keeper_(std::move(opened)),
        engine(*keeper_) {}

  const gpumem::Bytes limit;
  const gpumem::Bytes granularity;
  const std::string device;
  const int ordinal;
  const gpumem::c_abi::Owner owner;
  // Of the process's own.
  gpumem_session* const session;
  gpumem_allocator* const older;  ///< the one before it, whose broker is gone

 private:
  const std::shared_ptr<gpumem::allocator::Engine> keeper_;

 public:
  gpumem::allocator::Engine& engine;
};

struct gpumem_canceller final {
  std::stop_source source;
};

namespace gpumem::c_abi {

/// Applies `call` to the object of the handle's member `kept`, and makes a status of the Result.
/// `kind`  names the kind of handle in messages: `session`.
template <class Handle, class T, class Call>
gpumem_status with_object(Handle* handle, Kept<T> Handle::*kept, const char* kind, Call call) noexcept {
  return guarded([&] {
    if (auto given = not_null(handle, kind); !given) return fail(given.error());
    const auto object = (handle->*kept).use();
    if (!object) return fail(object.error());
    const auto done = call(**object);
    return done ? GPUMEM_OK : fail(done.error());
  });
}
template <class Call>
gpumem_status with_session(gpumem_session* handle, Call call) noexcept {
  return with_object(handle, &gpumem_session::session, "session", call);
}
template <class Call>
gpumem_status with_import(gpumem_import* handle, Call call) noexcept {
  return with_object(handle, &gpumem_import::import, "import", call);
}

/// Whether a _free function may free `handle`.
template <class T>
bool may_free(const T* handle) {
  return handle != nullptr && handle->is_of_this_process() && handle->owner == Owner::kProgram;
}

/// Frees the handle, and so closes what the program has not. The thread is not cancelled meanwhile.
template <class T>
void free_handle(T* handle) {
  const NotCancelled whole;
  delete handle;
}

}  // namespace gpumem::c_abi
