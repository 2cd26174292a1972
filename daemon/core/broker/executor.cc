#include "daemon/core/broker/executor.h"

#include <future>
#include <memory>
#include <utility>

namespace gpumem::core {

// If the core has stopped it drops the work, and with that the promise.
bool Executor::post_and_wait(const Work& work) {
  auto done = std::make_shared<std::promise<void>>();
  std::future<void> finished = done->get_future();
  post([done = std::move(done), &work](Broker& broker, TimePoint now) {
    work(broker, now);
    done->set_value();
  });
  try {
    finished.get();
    return true;
  } catch (const std::future_error&) {
    return false;
  }
}

}  // namespace gpumem::core
