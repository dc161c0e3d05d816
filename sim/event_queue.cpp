#include "sim/event_queue.h"
