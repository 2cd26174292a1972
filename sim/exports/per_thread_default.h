#pragma once
namespace gpumem::sim {

/// While one lives, the calling thread's default stream is its own one: the call came in by a name that ends
/// in _ptds or _ptsz.
class PerThreadDefault {
 public:
  PerThreadDefault() { is_on_ = true; }
  ~PerThreadDefault() { is_on_ = false; }
  PerThreadDefault(const PerThreadDefault&) = delete;
  PerThreadDefault& operator=(const PerThreadDefault&) = delete;

  static bool is_on() { return is_on_; }

 private:
  inline static thread_local bool is_on_ = false;
};

}  // namespace gpumem::sim
