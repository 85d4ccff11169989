"""Where time goes as work grows: three regimes, and the sizes at which one gives way to the next."""
