#include "client/c/torch_errors.h"

#include <dlfcn.h>

#include <cstdint>
#include <stdexcept>

namespace gpumem::c_abi {
namespace {

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

}  // namespace

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

}  // namespace gpumem::c_abi
