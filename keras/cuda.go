//go:build cuda

package keras

import _ "github.com/mezzo-ml/mezzo/backend/cuda" // registers "cuda"
