#pragma once
#include <forward_list>
#include <stop_token>
#include <utility>

#include "gpumem.h"
#include "gpumem/options.h"
#include "gpumem/result.h"

namespace gpumem::c_abi {

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
