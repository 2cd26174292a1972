#include <dlfcn.h>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <typeinfo>

#include "client/c/last_error.h"
#include "client/c/process_default.h"
#include "gpumem/bytes.h"

// PyTorch's CUDAPluggableAllocator treats any returned value as memory, null included, and passes exceptions
// on to Python. So a failure must be an exception. It accepts null for zero bytes and never frees it.
// The library has a C++ runtime of its own, unknown to PyTorch's. So an exception is one of the process's
// libstdc++, made and thrown by it. A function that throws has nothing to clean up and no noexcept code in
// it, because those are handled by the library's own runtime. Functions that it calls are not inlined.

namespace gpumem::c_abi {
namespace {

/// The exception to throw, if any.
class Refusal {
 public:
  using Throw = void (*)(void* object, const std::type_info* type, void (*destroy)(void*));

  constexpr Refusal() = default;
  Refusal(Throw thrower, void* object, const std::type_info* type, void (*destroy)(void*))
      : throw_(thrower), object_(object), type_(type), destroy_(destroy) {}

  /// Throws it. Nothing to throw: returns.
  void raise() const {
    if (throw_ != nullptr) throw_(object_, type_, destroy_);
  }

 private:
  Throw throw_ = nullptr;
  void* object_ = nullptr;
  const std::type_info* type_ = nullptr;
  void (*destroy_)(void*) = nullptr;
};

/// A library that the process has loaded. The program that catches the exception keeps it loaded.
class Loaded {
 public:
  explicit Loaded(const char* name) noexcept : handle_(::dlopen(name, RTLD_LAZY | RTLD_NOLOAD)) {}
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;
  ~Loaded() {
    if (handle_ != nullptr) ::dlclose(handle_);
  }
  /// Null: it is not loaded, or has no such symbol.
  template <class Symbol>
  Symbol find(const char* name) const noexcept {
    return handle_ == nullptr ? nullptr : reinterpret_cast<Symbol>(::dlsym(handle_, name));
  }

 private:
  void* handle_;
};

/// A std::string of the process's libstdc++, in the layout since GCC 5.
struct alignas(8) String {
  unsigned char bytes[32];
};
/// c10::SourceLocation.
struct SourceLocation {
  const char* function;
  const char* file;
  std::uint32_t line;
};

/// The functions that make and throw exceptions. Their names are those of the Itanium C++ ABI.
struct Runtime {
  const Loaded library{"libstdc++.so.6"};
  void* (*allocate)(std::size_t) = library.find<void* (*)(std::size_t)>("__cxa_allocate_exception");
  Refusal::Throw throw_it = library.find<Refusal::Throw>("__cxa_throw");
  void (*make_error)(void*,
                     const char*) = library.find<void (*)(void*, const char*)>("_ZNSt13runtime_errorC1EPKc");
  void (*destroy_error)(void*) = library.find<void (*)(void*)>("_ZNSt13runtime_errorD1Ev");
  const std::type_info* error_type = library.find<const std::type_info*>("_ZTISt13runtime_error");
  void (*make_string)(String*, const char*, const void*) =
      library.find<void (*)(String*, const char*, const void*)>(
          "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEC1EPKcRKS3_");
  void (*destroy_string)(String*) =
      library.find<void (*)(String*)>("_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEED1Ev");

  bool is_complete() const {
    return allocate != nullptr && throw_it != nullptr && make_error != nullptr && destroy_error != nullptr &&
           error_type != nullptr;
  }
};

/// c10::OutOfMemoryError (c10/util/Exception.h). PyTorch 2.15.0 exports it whole from libc10.so. In
/// PyTorch 2.9.1 it has no constructor of its own: it is a c10::Error with another table of virtual
/// functions, which libc10_cuda.so exports. Its destructor is the first of these, as in std::exception. It is
/// made in more space than any version needs.
class OutOfMemory {
 public:
  bool is_known() const { return make_ != nullptr && type_ != nullptr; }
  /// `text`  is changed.
  Refusal make(const Runtime& runtime, String& text) const {
    void* object = runtime.allocate(kSpace);
    make_(object, {"gpumem", "libgpumem.so.0", 0}, &text);
    auto*& virtuals = *static_cast<const Destroy**>(object);
    if (virtuals_ != nullptr) virtuals = virtuals_ + kFirstVirtual;
    return {runtime.throw_it, object, type_, *virtuals};
  }

 private:
  using Make = void (*)(void*, SourceLocation, String*);
  using Destroy = void (*)(void*);
  static constexpr std::size_t kSpace = 1024;
  static constexpr std::size_t kFirstVirtual = 2;  ///< after the offset to the top, and the type
  static constexpr const char* kType = "_ZTIN3c1016OutOfMemoryErrorE";

  const Loaded base_{"libc10.so"};
  const Loaded cuda_{"libc10_cuda.so"};
  const Make own_ = base_.find<Make>(
      "_ZN3c1016OutOfMemoryErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE");
  const Destroy* const virtuals_ =
      own_ != nullptr ? nullptr : cuda_.find<const Destroy*>("_ZTVN3c1016OutOfMemoryErrorE");
  const Make make_ = own_ != nullptr || virtuals_ == nullptr
                         ? own_
                         : base_.find<Make>(
                               "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_"
                               "stringIcSt11char_traitsIcESaIcEEE");
  const std::type_info* const type_ = (own_ != nullptr ? base_ : cuda_).find<const std::type_info*>(kType);
};

bool lacks_memory(gpumem_status status) {
  return status == GPUMEM_RESOURCE_EXHAUSTED || status == GPUMEM_DEADLINE_EXCEEDED;
}

Refusal out_of_memory(const Runtime& runtime, const OutOfMemory& kind, const char* words) {
  String text;
  const char allocator{};  // std::allocator has no state
  runtime.make_string(&text, words, &allocator);
  const Refusal refusal = kind.make(runtime, text);
  runtime.destroy_string(&text);
  return refusal;
}

/// Makes the thread's last error what the exception says, and returns it. Programs look for PyTorch's own
/// first words.
const char* words_of(gpumem_status status, const std::string& words) noexcept {
  (void)guarded([&] {
    return fail(static_cast<Code>(status), std::string(lacks_memory(status) ? "CUDA out of memory. " : "") +
                                               "gpumem: " + words + ": " + gpumem_status_name(status) + ": " +
                                               gpumem_last_error());
  });
  return gpumem_last_error();
}

/// The exception for the calling thread's last failure: PyTorch's c10::OutOfMemoryError if there is no
/// memory, else a std::runtime_error. `words` become part of the thread's last error. Where the process has
/// no libstdc++.so.6, they go to `failures`, and there is nothing to throw.
Refusal refuse_with(FailureLog& failures, gpumem_status status, const std::string& words) noexcept {
  const Runtime runtime;
  const char* text = words_of(status, words);
  if (!runtime.is_complete()) return failures.report(status), Refusal{};
  const OutOfMemory kind;
  const bool can_say = kind.is_known() && runtime.make_string != nullptr && runtime.destroy_string != nullptr;
  if (lacks_memory(status) && can_say) return out_of_memory(runtime, kind, text);
  void* object = runtime.allocate(sizeof(std::runtime_error));
  runtime.make_error(object, text);
  return {runtime.throw_it, object, runtime.error_type, runtime.destroy_error};
}

/// As above. Calls `what` for the message.
template <class What>
Refusal refuse(FailureLog& failures, gpumem_status status, What what) noexcept {
  std::string words;
  (void)guarded([&] { return words = what(), GPUMEM_OK; });
  return refuse_with(failures, status, words);
}

constinit FailureLog not_allocated("gpumem_torch_alloc");
constinit FailureLog not_freed("gpumem_torch_free");
constinit FailureLog no_pool("gpumem_torch_begin_allocate_to_pool");
constinit FailureLog not_trimmed("gpumem_torch_reset");
constinit FailureLog not_recorded("gpumem_torch_record_stream");

/// An allocation's answer: memory, or what is to be thrown.
struct Answer {
  void* memory = nullptr;
  Refusal refusal{};
};

[[gnu::noinline]] Answer allocate(size_t size, int device, gpumem_stream stream) noexcept {
  gpumem_address address = 0;
  const gpumem_status status = allocate_from_default(device, size, stream, &address);
  if (status == GPUMEM_OK) return {.memory = reinterpret_cast<void*>(address)};
  return {.refusal = refuse(not_allocated, status, [&] {
            return "no " + to_string(Bytes{size}) + " on device " + std::to_string(device);
          })};
}

/// Memory of others, such as another process's that PyTorch has opened, is none of ours, and its owner sees
/// to it.
[[gnu::noinline]] Refusal record(void* pointer, gpumem_stream stream) noexcept {
  const auto address = reinterpret_cast<gpumem_address>(pointer);
  gpumem_allocator* allocator = process_allocator_of(address);
  if (allocator == nullptr) return {};
  const gpumem_status status = gpumem_record_stream(allocator, address, stream);
  if (status == GPUMEM_OK) return {};
  return refuse(not_recorded, status, [] { return "the stream is not recorded"; });
}

/// A captured graph uses its memory at every launch, so nobody else may have it until the pool is released.
[[gnu::noinline]] Refusal refuse_pool(int device) noexcept {
  (void)fail(
      Code::kFailedPrecondition,
      "gpumem keeps no memory apart for CUDA graphs and torch.cuda.use_mem_pool, which would share it with "
      "other tensors");
  return refuse(no_pool, GPUMEM_FAILED_PRECONDITION,
                [&] { return "no private memory pool on device " + std::to_string(device); });
}

}  // namespace

}  // namespace gpumem::c_abi

extern "C" {

void* gpumem_torch_alloc(size_t size, int device, gpumem_stream stream) {
  if (size == 0) return nullptr;
  const gpumem::c_abi::Answer answer = gpumem::c_abi::allocate(size, device, stream);
  answer.refusal.raise();
  return answer.memory;
}

void gpumem_torch_free(void* pointer, size_t size, int, gpumem_stream stream) noexcept {
  if (pointer == nullptr) return;
  const auto address = reinterpret_cast<gpumem_address>(pointer);
  gpumem_allocator* allocator = gpumem::c_abi::process_allocator_of(address);
  if (allocator == nullptr) {
    const auto all = gpumem::c_abi::process_allocators();
    if (all.empty()) return;  // of the process that forked this one
    allocator = all.front();  // which says that it is none of its blocks
  }
  const gpumem_status status = gpumem_deallocate(allocator, address, size, stream);
  if (status != GPUMEM_OK) gpumem::c_abi::not_freed.report(status);
}

void gpumem_torch_record_stream(void* pointer, gpumem_stream stream) {
  if (pointer != nullptr) gpumem::c_abi::record(pointer, stream).raise();
}

void gpumem_torch_begin_allocate_to_pool(int device, uint64_t, uint64_t, const void*) {
  gpumem::c_abi::refuse_pool(device).raise();
}

void gpumem_torch_reset(void) noexcept {
  for (gpumem_allocator* allocator : gpumem::c_abi::process_allocators()) {
    const gpumem_status status = gpumem_allocator_trim(allocator, GPUMEM_UNKNOWN_SIZE, nullptr);
    if (status != GPUMEM_OK) gpumem::c_abi::not_trimmed.report(status);
  }
}

}  // extern "C"
