#include "sim/batching/random.h"
