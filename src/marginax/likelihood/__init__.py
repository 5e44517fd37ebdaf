"""log p_theta(y) and its derivatives: modes, quadrature, importance, posterior draws, profiles."""
