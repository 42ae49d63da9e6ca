"""What the lake says of all plans together: findings, incidents, risk, and how a plan is merged into them."""
