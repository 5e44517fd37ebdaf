"""What a statistician needs at the estimate: exact likelihoods, information, posterior draws."""
